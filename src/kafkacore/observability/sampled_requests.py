"""The sampled request log contains one of every N requests with the times of its stages, in the format of Apache
Kafka's `kafka-request.log`.

Processor threads choose the requests and note their times (`_fast/plane/samples.pxd`), so hot requests stay on the hot
path. Another thread takes the samples and writes a line for each. The number of waiting samples, the number of lines
written at a time, and the size of the file are bounded. Samples beyond these bounds are dropped and counted.

A line contains the JSON that Apache Kafka's `RequestConvertToJson` writes, without the contents of request and
response. It has three more fields: `plane`, `sampledOf` (N), and `dropped` (the number of samples that were lost before
this one).
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from kafkacore._fast.base.thread_priority import enter_thread
from kafkacore.network.plane import Plane
from kafkacore.protocol import apis
from kafkacore.runtime.workers import BackgroundThread

LOG: Final = logging.getLogger("kafkacore.observability")
INTERVAL_S: Final = 1.0
MOST_OF_A_PLANE: Final = 16384  # one round writes at most this number of samples of one plane
_BATCH: Final = 128  # the number of lines that are made before other threads may take the GIL
THREAD: Final = "kc-request-log"  # the name of the thread in `top -H`
_NS_OF_A_MS: Final = 1_000_000
_CLIENT_IDS: Final = 1024  # the number of client ids whose JSON is cached


class RequestLogError(OSError):
    """The file of the log cannot be opened."""


class SampledRequestLog:
    """From `start` to `close`, writes the samples of its planes to `path` every INTERVAL_S.

    When the file would exceed `max_bytes`, it is renamed to `path`.1, and replaces an older file of this name. `close`
    writes the remaining samples, so call it after the planes have stopped. Raises RequestLogError if the file cannot be
    opened, or if another node writes to the file.
    """

    def __init__(
        self, path: str, max_bytes: int, wall_ms: Callable[[], int], make_thread: Callable[..., BackgroundThread]
    ) -> None:
        self._file = BoundedFile(path, max_bytes)
        self._wall_ms = wall_ms
        self._planes: list[Plane] = []
        self._ended = threading.Event()
        self._broken = False
        self._thread = make_thread("kafkacore-request-log", self._run)

    def add(self, planes: Iterable[Plane]) -> None:
        """Adds planes whose samples this log writes. Call this only before `start`."""
        self._planes += planes

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self.write_all()
        self._file.close()

    def _run(self) -> None:
        enter_thread(THREAD)
        while not self._ended.wait(INTERVAL_S):
            self.write_all()

    def write_all(self) -> None:
        """Writes all waiting samples."""
        for plane in self._planes:
            left = MOST_OF_A_PLANE
            while left > 0:
                samples = plane.native.take_samples(min(_BATCH, left))
                if not samples:
                    break
                left -= len(samples)
                self._write(plane, samples)

    def _write(self, plane: Plane, samples: list[tuple[Any, ...]]) -> None:
        now_ms = self._wall_ms()
        lines = [line(plane.kind, plane.listener_names, sample, now_ms) for sample in samples]
        try:
            self._file.write("".join(lines).encode())
        except OSError as error:
            # This thread cannot know whether these samples were written. The metric counts all of them as dropped.
            plane.native.drop_samples(len(samples))
            if not self._broken:
                LOG.warning(
                    "%s: sampled requests are dropped until the file can be written: %s", self._file.path, error
                )
            self._broken = True
            return
        if self._broken:
            LOG.info("%s can be written again", self._file.path)
        self._broken = False


class BoundedFile:
    """A file for appending. When it would exceed `max_bytes`, it is renamed to `path`.1."""

    def __init__(self, path: str, max_bytes: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._handle = -1
        try:
            self._open()
        except OSError as error:
            raise RequestLogError(
                error.errno,
                f"sampled.request.log.file={path}: {error.strerror}; choose a file that this node alone writes",
            ) from error

    def write(self, data: bytes) -> None:
        """Appends `data`. If the disk is full, the file may get only the first part of `data`. Raises OSError."""
        if self._handle < 0:
            self._open()
        if self._size and self._size + len(data) > self._max_bytes:
            with contextlib.suppress(FileNotFoundError):  # another program has already moved the file away
                os.replace(self.path, f"{self.path}.1")
            self.close()
            self._open()
        rest = memoryview(data)
        while rest:
            count = os.write(self._handle, rest)
            self._size += count
            rest = rest[count:]

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _open(self) -> None:
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # If two nodes used the same file, a rotation by one node could delete lines of the other node.
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._size = os.fstat(handle).st_size
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle


def line(plane: str, listeners: tuple[str, ...], sample: tuple[Any, ...], now_ms: int) -> str:
    """Returns one line of the log, from a sample of `NativePlane.take_samples` and the time at which it was taken."""
    (
        age_ns, api_key, version, correlation_id, client_id, listener, sampled_of, dropped, total_ns, queue_ns,
        local_ns, remote_ns, throttle_ns, response_queue_ns, send_ns,
    ) = sample  # fmt: skip
    at_ms = now_ms - age_ns // _NS_OF_A_MS
    return _LINE % (
        _second(at_ms // 1000), at_ms % 1000, api_key, version, correlation_id, _quoted(client_id), _api_name(api_key),
        total_ns / _NS_OF_A_MS, queue_ns / _NS_OF_A_MS, local_ns / _NS_OF_A_MS, remote_ns / _NS_OF_A_MS,
        throttle_ns // _NS_OF_A_MS, response_queue_ns / _NS_OF_A_MS, send_ns / _NS_OF_A_MS,
        _quoted(listeners[listener]), plane, sampled_of, dropped,
    )  # fmt: skip


# All lines come from one template, because making a line is the most expensive part of sampling.
_LINE: Final = (
    "[%s,%03d] DEBUG Completed request:"
    '{"requestHeader":{"requestApiKey":%d,"requestApiVersion":%d,"correlationId":%d,"clientId":%s,'
    '"requestApiKeyName":"%s"},"totalTimeMs":%.3f,"requestQueueTimeMs":%.3f,"localTimeMs":%.3f,"remoteTimeMs":%.3f,'
    '"throttleTimeMs":%d,"responseQueueTimeMs":%.3f,"sendTimeMs":%.3f,"listener":%s,"plane":"%s","sampledOf":%d,'
    '"dropped":%d} (kafka.request.logger)\n'
)


@functools.lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    """Returns a second of local time, as Log4j writes it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


@functools.lru_cache(maxsize=_CLIENT_IDS)
def _quoted(text: str | None) -> str:
    return json.dumps(text)


@functools.cache
def _api_name(api_key: int) -> str:
    return apis.api(api_key).name
