"""Keeps the last requests of a broker's clients, for assertions and for reports of failed tests."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final

from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, ProtocolError
from kafkacore.protocol.response_errors import error_codes
from kafkacore.testing.lookup import api_named

MAX_REQUESTS: Final = 1_000
MAX_BYTES: Final = 64 << 20  # the limit for all bodies and answers together
_UNSUPPORTED_VERSION: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
_SHOWN: Final = 20  # the number of requests that a message lists


class NothingRecorded(RuntimeError):
    """A test asks for the requests of a broker that does not record them."""


class RequestNotSeen(AssertionError):
    """The expected request did not arrive in time. The message shows the requests that arrived."""


class RecordedRequest:
    """One request and its answer."""

    def __init__(self, number: int, call: RequestContext, frame: bytes, received_ms: int) -> None:
        self.number = number
        self.api = apis.api(call.api_key).message
        self.api_key = call.api_key
        self.version = call.api_version
        self.client_id = call.client_id
        self.client_host = call.client_host
        self.correlation_id = call.correlation_id
        self.received_ms = received_ms  # by the broker's clock
        self.answered = False
        self.took_ms: float | None = None  # the real time until the answer was ready
        self.fault: str | None = None  # the fault that a test has ordered for this request
        self._frame = frame
        self._answer: bytes | None = None
        self._began = time.perf_counter()

    def answer_with(self, frame: bytes | None) -> None:
        self.took_ms = (time.perf_counter() - self._began) * 1e3
        self._answer = frame
        self.answered = True

    @property
    def size_bytes(self) -> int:
        return len(self._frame) + len(self._answer or b"")

    @cached_property
    def body(self) -> Any:
        """The decoded request. Its fields have the names of Kafka's message definitions, in snake case. Raises
        ProtocolError."""
        return apis.request_class(self.api_key).decode_prefix(self._frame, self.version)[0]

    @property
    def response(self) -> Any:
        """The decoded response, or None if there is no response yet. Raises ProtocolError."""
        if self._answer is None:
            return None
        header = len(apis.response_header(self.api_key, self.version, self.correlation_id))
        version = self.version
        if self.api_key == ApiKey.API_VERSIONS and self._answer[header : header + 2] == _UNSUPPORTED_VERSION:
            version = 0  # every client can read this version (KIP-511)
        return apis.response_class(self.api_key).decode_prefix(memoryview(self._answer)[header:], version)[0]

    @property
    def error(self) -> str | None:
        """The first error in the response, by Kafka's name."""
        return next(iter(self.errors), None)

    @property
    def errors(self) -> list[str]:
        """All errors in the response, by Kafka's names, without duplicates."""
        try:
            codes = dict.fromkeys(() if self.response is None else error_codes(self.response, self.version))
        except ProtocolError:
            return []
        return [ErrorCode(code).name for code in codes if code]

    @property
    def topics(self) -> list[str]:
        """The topics that the request names. Topics given by id are left out."""
        try:
            return list(dict.fromkeys(_topic_names(self.body)))
        except ProtocolError:
            return []

    def __repr__(self) -> str:
        text = f"#{self.number} {self.api} v{self.version} of {self.client_id!r}"
        if self.topics:
            text += f" for {', '.join(self.topics[:3])}"
        if not self.answered:
            text += ", not answered yet"
        elif self._answer is None:
            text += f", no answer after {self.took_ms:.1f} ms"
        else:
            text += f", answered {self.error or 'well'} after {self.took_ms:.1f} ms"
        return text + (f" ({self.fault})" if self.fault else "")


class Requests:
    """The last requests of a broker, oldest first. Keeps at most 1,000 requests and 64 MiB. Can be read on any
    thread."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._kept: deque[RecordedRequest] = deque()
        self._bytes = 0
        self._number = 0
        self._changed = threading.Condition()
        self._changes = 0
        self._users = 0

    # --- called by the broker ---

    @property
    def is_recording(self) -> bool:
        return self._users > 0

    def begin(self, call: RequestContext, frame: bytes, received_ms: int) -> RecordedRequest:
        with self._changed:
            self._number += 1
            entry = RecordedRequest(self._number, call, frame, received_ms)
            self._kept.append(entry)
            self._bytes += len(frame)
            self._forget()
            self._changes += 1
            self._changed.notify_all()
        return entry

    def end(self, entry: RecordedRequest, answer: bytes | None) -> None:
        with self._changed:
            if self._kept and entry.number >= self._kept[0].number:
                self._bytes += len(answer or b"")
            entry.answer_with(answer)
            self._forget()
            self._changes += 1
            self._changed.notify_all()

    def _forget(self) -> None:
        while len(self._kept) > MAX_REQUESTS or (self._bytes > MAX_BYTES and len(self._kept) > 1):
            self._bytes -= self._kept.popleft().size_bytes

    # --- called by a test ---

    def start(self) -> None:
        """Starts recording. From now on Python answers every request, which slows down fast clients."""
        self._users += 1
        if self._users == 1:
            self._on_change()

    def stop(self) -> None:
        """Undoes one call of `start`. Recording ends when every `start` has been undone. Requests recorded so far are
        kept."""
        if self._users:
            self._users -= 1
            if not self._users:
                self._on_change()

    @contextlib.contextmanager
    def recording(self) -> Iterator[Requests]:
        """Starts the recorder, and stops it after the block."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def clear(self) -> None:
        """Drops the recorded requests."""
        with self._changed:
            self._kept.clear()
            self._bytes = 0

    def of(
        self,
        api: str | int,
        *,
        client_id: str | None = None,
        topic: str | None = None,
        where: Callable[[RecordedRequest], bool] | None = None,
    ) -> list[RecordedRequest]:
        """Returns the matching requests for an API, oldest first. Raises UnknownName, NothingRecorded."""
        wanted = api_named(api).key
        return [
            each
            for each in self._all()
            if each.api_key == wanted
            and (client_id is None or each.client_id == client_id)
            and (topic is None or topic in each.topics)
            and (where is None or where(each))
        ]

    def wait_for(
        self,
        api: str | int,
        *,
        count: int = 1,
        timeout_seconds: float = 5.0,
        answered: bool = False,
        client_id: str | None = None,
        topic: str | None = None,
        where: Callable[[RecordedRequest], bool] | None = None,
    ) -> RecordedRequest:
        """Waits until `count` matching requests have arrived, and returns the last of them. With `answered`, only
        requests with a response count.

        Raises UnknownName, NothingRecorded, and RequestNotSeen, which shows the other requests.
        """
        name = api_named(api).message
        until = time.monotonic() + timeout_seconds
        while True:
            with self._changed:
                seen = self._changes
            # The lock is not held here, because `where` may send a request to the broker, and the recording of this
            # request would wait for the lock.
            found = self.of(api, client_id=client_id, topic=topic, where=where)
            if answered:
                found = [each for each in found if each.answered]
            if len(found) >= count:
                return found[count - 1]
            if not self._changed_since(seen, until):
                break
        with self._changed:
            what = f"{len(found)} of {count} {name}" if count > 1 else f"no {name}"
            for label, value in (("client", client_id), ("topic", topic)):
                what += f" of {label} {value!r}" if value is not None else ""
            what += " that fits `where`" if where is not None else ""
            raise RequestNotSeen(f"{what} arrived within {timeout_seconds:g} s. {self._seen()}")

    def _changed_since(self, seen: int, until: float) -> bool:
        with self._changed:
            while self._changes == seen:
                left = until - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return False
        return True

    def show(self, last: int = _SHOWN) -> str:
        """Returns the last requests, one on each line."""
        with self._changed:
            return "\n".join(repr(each) for each in list(self._kept)[-last:])

    def _seen(self) -> str:
        if not self._kept:
            return "No request arrived at all."
        counts = Counter(each.api for each in self._kept)
        told = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        return f"These requests arrived: {told}. The last ones:\n{self.show()}"

    def _all(self) -> list[RecordedRequest]:
        with self._changed:
            if not self._users and not self._kept:
                raise NothingRecorded(
                    "this broker records no requests: create it with Broker(record=True), "
                    "or use `with broker.requests.recording():`"
                )
            return list(self._kept)

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[RecordedRequest]:
        return iter(self._all())

    def __getitem__(self, index: int) -> RecordedRequest:
        return self._all()[index]

    def __repr__(self) -> str:
        return f"<Requests: {len(self._kept)} kept{'' if self._users else ', not recording'}>"


def _topic_names(message: Any) -> Iterator[str]:
    for name in getattr(message, "FIELDS", ()):
        if not name.startswith("topic"):
            continue
        for each in getattr(message, name) or () if isinstance(getattr(message, name), list) else ():
            found = each if isinstance(each, str) else getattr(each, "name", None) or getattr(each, "topic", None)
            if isinstance(found, str) and found:
                yield found
