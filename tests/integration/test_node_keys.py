"""Keys whose effect only a whole node in this process shows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkacore.runtime.process import DATA, Runtime, default_processors
from kafkacore.server.node import Node
from kafkacore.tools.dev import configuration, prepare


@contextmanager
def started(path: Path, *overrides: str) -> Iterator[Node]:
    config = configuration(str(path), 0, list(overrides))
    prepare(config)
    with Node(config) as node:
        yield node


def test_as_many_processors_serve_clients_as_are_asked_for(tmp_path: Path) -> None:
    asked = default_processors() + 1
    with started(tmp_path, f"num.network.threads={asked}"):
        runtime = Runtime.shared()
        try:
            assert len(runtime.processors(DATA)) == asked
        finally:
            runtime.release()


def test_as_many_threads_wait_for_disks_as_are_asked_for(tmp_path: Path) -> None:
    with started(tmp_path, "num.io.threads=3") as node:
        broker = node._broker
        assert broker is not None
        blocked, go = threading.Semaphore(0), threading.Event()

        def work() -> None:
            blocked.release()
            go.wait(20)

        futures = [broker.context.blocking.submit(work) for _ in range(4)]
        for _ in range(3):
            assert blocked.acquire(timeout=20)
        assert not blocked.acquire(blocking=False)
        go.set()
        assert [future.result(20) for future in futures] == [None] * 4


def test_a_start_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    with (
        pytest.raises(TimeoutError, match=r"server\.max\.startup\.time\.ms=0"),
        started(tmp_path, "server.max.startup.time.ms=0"),
    ):
        pass
    # All that was begun is undone: the directory is free for the next.
    with started(tmp_path) as node:
        assert node.bootstrap


def test_segments_of_the_metadata_log_are_as_small_as_is_asked_for(tmp_path: Path) -> None:
    with started(tmp_path, "internal.metadata.log.segment.bytes=600") as node:
        node.create_topics([(f"t{n}", 1) for n in range(20)])
        node.create_topics([("last", 1)])
    assert len(list(tmp_path.glob("__cluster_metadata-0/*.log"))) > 2
