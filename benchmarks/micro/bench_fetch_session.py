"""Benchmarks of a follower's Fetch in a fetch session: its cost when no partition changed, and when one partition
changed.

The client and the processor share the machine. The important result is how the time grows with the size of the session.

.venv/bin/python -m pytest benchmarks/micro/bench_fetch_session.py --benchmark-group-by=group \\
    --benchmark-columns=min,median
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kafkacore.protocol import messages as m

VERSION = 17
FOLLOWER = 2
SIZES = (10, 1_000, 5_000)


def data_planes() -> ModuleType:
    """Returns the data plane without a node, which the tests also use."""
    path = Path(__file__).parents[2] / "tests/hot/conftest.py"
    spec = importlib.util.spec_from_file_location("data_planes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Follower:
    """A follower's connection with a session of all partitions of a plane."""

    def __init__(self, planes: ModuleType, path: Path, partitions: int) -> None:
        self.plane = planes.DataPlane(path, partitions, timestamp_after_max_ms=1 << 62)
        for each in self.plane.partitions:
            each.become_leader(1, 1, 1, followers=[(FOLLOWER, True)])
        self.batch = planes.make_batch(1)
        self.client = self.plane.client()
        self.ends = [0] * partitions
        self.epoch = 0
        self.session_id = 0
        self.session_id = self.fetch(dict.fromkeys(range(partitions), 0)).session_id
        assert self.session_id != 0
        self.fetch({})

    def fetch(self, offsets: dict[int, int]) -> m.FetchResponse:
        request = self.plane.fetch_request(offsets, VERSION, session_id=self.session_id, session_epoch=self.epoch)
        request.replica_state = m.FetchRequest.ReplicaState(replica_id=FOLLOWER)
        for topic in request.topics:
            for each in topic.partitions:
                each.current_leader_epoch = 1
        self.epoch += 1
        answer: m.FetchResponse = self.client.fetch(request, VERSION)
        assert answer.error_code == 0
        return answer

    def append(self, index: int) -> None:
        self.ends[index] = self.plane.partitions[index].append(self.batch).last_offset + 1


@pytest.fixture(params=SIZES)
def follower(request: Any, tmp_path: Path) -> Iterator[Follower]:
    one = Follower(data_planes(), tmp_path, request.param)
    yield one
    one.plane.close()


def test_fetch_without_news(benchmark: Any, follower: Follower) -> None:
    benchmark.group = "nothing changed"

    def run() -> None:
        assert follower.fetch({}).responses == []

    benchmark.pedantic(run, rounds=300, warmup_rounds=10)


def test_fetch_of_one_changed_partition(benchmark: Any, follower: Follower) -> None:
    """Measures two requests together: the Fetch that returns the new record, and the next Fetch, which names the new
    offset."""
    benchmark.group = "one partition changed"

    def run() -> None:
        follower.append(3)
        answer = follower.fetch({})
        assert [each.partition_index for topic in answer.responses for each in topic.partitions] == [3]
        follower.fetch({3: follower.ends[3]})

    benchmark.pedantic(run, rounds=300, warmup_rounds=10)
