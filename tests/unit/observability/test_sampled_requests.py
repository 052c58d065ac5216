"""The log of sampled requests has Apache Kafka's format, and its files are limited in size."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.observability.sampled_requests import BoundedFile, RequestLogError, SampledRequestLog, line
from kafkacore.runtime.workers import daemon_thread

MS = 1_000_000
NOW_MS = 1_790_000_000_123
SAMPLE = (2_000 * MS, 1, 12, 77, 'a "b"', 1, 100, 3, 21 * MS, 1 * MS, 2_500_000, 10 * MS, 0, 1_500, 6 * MS)


def entry(text: str) -> dict[str, Any]:
    """Returns the fields that the plane report of `kafkacore.spark` reads from a line."""
    found = re.fullmatch(r"\[([\d: -]{19}),(\d{3})\] DEBUG Completed request:(\{.*\}) \(kafka.request.logger\)\n", text)
    assert found is not None, text
    at_s = time.mktime(time.strptime(found[1], "%Y-%m-%d %H:%M:%S"))
    return {"at": int(at_s) * 1000 + int(found[2]), **json.loads(found[3])}


def test_line_has_the_form_of_apache_kafka_and_the_time_of_the_answer() -> None:
    assert entry(line("data", ("CONTROLLER", "PLAINTEXT"), SAMPLE, NOW_MS)) == {
        "at": NOW_MS - 2_000,
        "requestHeader": {
            "requestApiKey": 1,
            "requestApiVersion": 12,
            "correlationId": 77,
            "clientId": 'a "b"',
            "requestApiKeyName": "FETCH",
        },
        "totalTimeMs": 21.0,
        "requestQueueTimeMs": 1.0,
        "localTimeMs": 2.5,
        "remoteTimeMs": 10.0,
        "throttleTimeMs": 0,
        "responseQueueTimeMs": 0.002,
        "sendTimeMs": 6.0,
        "listener": "PLAINTEXT",
        "plane": "data",
        "sampledOf": 100,
        "dropped": 3,
    }


def test_line_stays_one_line_when_a_client_id_holds_line_breaks() -> None:
    sample = (*SAMPLE[:4], 'x\n[2026-01-01 00:00:00,000] {"a": 1}', *SAMPLE[5:])
    text = line("data", ("A", "B"), sample, NOW_MS)
    assert text.count("\n") == 1
    assert entry(text)["requestHeader"]["clientId"] == sample[4]


class FakeNative:
    """A stub of the native plane, which returns the given samples."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.dropped = 0

    def take_samples(self, most: int) -> list[tuple[Any, ...]]:
        count = min(most, self.left)
        self.left -= count
        return [SAMPLE] * count

    def drop_samples(self, count: int) -> None:
        self.dropped += count


def made(path: Path, count: int, max_bytes: int = 1 << 20) -> tuple[SampledRequestLog, FakeNative]:
    native = FakeNative(count)
    log = SampledRequestLog(str(path), max_bytes, lambda: NOW_MS, daemon_thread)
    log.add([SimpleNamespace(kind="data", listener_names=("A", "B"), native=native)])  # type: ignore[list-item]
    return log, native


def test_close_writes_the_samples_that_are_left(tmp_path: Path) -> None:
    log, _ = made(tmp_path / "log", 300)
    log.start()
    log.close()
    assert len((tmp_path / "log").read_text().splitlines()) == 300


def test_log_is_added_to_when_it_is_opened_again(tmp_path: Path) -> None:
    for _ in range(2):
        log, _ = made(tmp_path / "log", 2)
        log.close()
    assert len((tmp_path / "log").read_text().splitlines()) == 4


def test_one_round_writes_a_bounded_number_of_samples(tmp_path: Path) -> None:
    log, native = made(tmp_path / "log", 20_000, max_bytes=100 << 20)
    log.write_all()
    assert native.left == 20_000 - 16_384
    log.close()


def test_samples_count_as_dropped_while_the_file_cannot_be_written(tmp_path: Path, caplog: Any) -> None:
    path = tmp_path / "sub" / "log"
    path.parent.mkdir()
    log, native = made(path, 0, max_bytes=1000)
    native.left = 1
    log.write_all()
    path.unlink()
    path.parent.rmdir()  # the next line needs a new file, which cannot be created
    for count in (3, 2):
        native.left = count
        log.write_all()
    assert native.dropped == 5
    path.parent.mkdir()
    native.left = 1
    with caplog.at_level(logging.INFO, "kafkacore.observability"):
        log.write_all()
    assert len(path.read_text().splitlines()) == 1
    log.close()
    warned, told = caplog.messages
    assert "sampled requests are dropped until the file can be written" in warned
    assert told == f"{path} can be written again"


def test_file_and_the_one_before_stay_within_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = BoundedFile(str(path), 100)
    for number in range(20):
        file.write(b"%039d\n" % number)
        assert path.stat().st_size <= 100
    file.close()
    assert sorted(os.listdir(tmp_path)) == ["log", "log.1"]
    kept = [int(each) for name in ("log.1", "log") for each in (tmp_path / name).read_text().splitlines()]
    assert kept == [16, 17, 18, 19]


def test_file_is_refused_when_another_node_writes_it(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    first = BoundedFile(path, 100)
    with pytest.raises(RequestLogError, match=r"sampled.request.log.file=.*choose a file that this node alone writes"):
        BoundedFile(path, 100)
    first.close()
    BoundedFile(path, 100).close()


def test_file_in_a_missing_directory_is_refused_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(RequestLogError, match=r"sampled.request.log.file=.*No such file or directory"):
        BoundedFile(str(tmp_path / "missing" / "log"), 100)


def test_thread_of_the_log_ends_with_it(tmp_path: Path) -> None:
    log, _ = made(tmp_path / "log", 1)
    log.start()
    log.close()
    assert "kafkacore-request-log" not in {each.name for each in threading.enumerate()}
