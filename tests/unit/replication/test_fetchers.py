"""The distribution of partitions over fetchers."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore.replication.fetchers import Address, FetcherMeasures, Fetchers, Follow, fetcher_number


class RecordedFetcher:
    def __init__(self, address: Address | None) -> None:
        self.address = address
        self.followed: dict[int, int] = {}
        self.closed = False
        self.free = asyncio.Event()
        self.free.set()

    @property
    def measures(self) -> FetcherMeasures:
        return FetcherMeasures(1, 0, self.address, 0, 0, 0, len(self.followed), 0)

    def follow(self, partitions: list[Follow]) -> None:
        self.followed |= {each.partition.index: each.leader_epoch for each in partitions}

    def stop(self, partitions: list[PartitionHandle]) -> None:
        for partition in partitions:
            del self.followed[partition.index]

    def move(self, address: Address | None) -> None:
        self.address = address

    def registered(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch

    async def settled(self) -> None:
        await self.free.wait()

    async def close(self) -> None:
        self.closed = True


class Made:
    def __init__(self, count: int = 1) -> None:
        self.of: dict[tuple[int, int], RecordedFetcher] = {}
        self.lack: Exception | None = None  # what `_make` raises
        self.faults: list[BaseException] = []
        self.fetchers = Fetchers(count, self._make, on_fault=self.faults.append)

    def _make(self, source_id: int, number: int, address: Address | None) -> RecordedFetcher:
        assert (source_id, number) not in self.of
        if self.lack is not None:
            raise self.lack
        made = self.of[source_id, number] = RecordedFetcher(address)
        return made


@pytest.fixture
def partitions(tmp_path: Path) -> list[PartitionHandle]:
    directory = LogDirectory(Environment(), str(tmp_path))
    return [PartitionHandle(directory, "orders", index, Uuid.random()) for index in range(4)]


def test_fetcher_number_is_apache_kafkas_when_there_are_three_fetchers() -> None:
    # The expected numbers are Utils.abs(31 * "orders".hashCode() + partition) % 3, computed as in Java.
    assert [fetcher_number("orders", index, 3) for index in range(4)] == [2, 1, 0, 2]
    assert [fetcher_number("__consumer_offsets", index, 3) for index in range(4)] == [2, 1, 0, 2]
    assert [fetcher_number("", index, 3) for index in range(4)] == [0, 1, 2, 0]


def test_fetchers_make_one_for_each_source_when_partitions_have_two_leaders(partitions: list[PartitionHandle]) -> None:
    made = Made()
    made.fetchers.brokers({2: Address("b", 9092)}, 7)
    made.fetchers.follow([Follow(partitions[0], 2, 5), Follow(partitions[1], 3, 6), Follow(partitions[2], 2, 5)])
    assert made.of[2, 0].followed == {0: 5, 2: 5}
    assert made.of[3, 0].followed == {1: 6}
    assert made.of[2, 0].address == ("b", 9092)
    assert made.of[3, 0].address is None


def test_fetchers_move_a_partition_when_its_leader_changes(partitions: list[PartitionHandle]) -> None:
    made = Made()
    made.fetchers.follow([Follow(partitions[0], 2, 5)])
    made.fetchers.follow([Follow(partitions[0], 3, 6)])
    assert made.of[2, 0].followed == {}
    assert made.of[3, 0].followed == {0: 6}
    made.fetchers.stop([partitions[0], partitions[1]])
    assert made.of[3, 0].followed == {}


async def moved(made: Made) -> None:
    """Runs the iterations of the event loop in which partitions move between fetchers."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_fetcher_has_no_measures_when_its_last_partition_has_another_leader(partitions: list[PartitionHandle]) -> None:
    made = Made()
    made.fetchers.follow([Follow(partitions[0], 2, 5)])
    assert [each.partitions for each in made.fetchers.measures()] == [1]
    made.fetchers.follow([Follow(partitions[0], 3, 6)])
    assert made.of[2, 0].followed == {}
    assert [each.partitions for each in made.fetchers.measures()] == [1]


def test_partitions_move_between_fetchers_when_their_number_changes(partitions: list[PartitionHandle]) -> None:
    async def run() -> None:
        made = Made()
        made.fetchers.follow([Follow(each, 2, 5) for each in partitions])
        made.fetchers.resize(3)
        await moved(made)
        assert [sorted(made.of[2, number].followed.items()) for number in range(3)] == [
            [(2, 5)],
            [(1, 5)],
            [(0, 5), (3, 5)],
        ]
        made.fetchers.resize(1)
        await moved(made)
        assert made.of[2, 0].followed == {0: 5, 1: 5, 2: 5, 3: 5}
        assert not made.of[2, 2].followed

    asyncio.run(run())


def test_partitions_wait_for_their_former_fetcher_when_the_number_changes(partitions: list[PartitionHandle]) -> None:
    """Both fetchers fetch in the same leader epoch, so nothing else prevents the former one from changing the logs."""

    async def run() -> None:
        made = Made()
        made.fetchers.follow([Follow(each, 2, 5) for each in partitions])
        former = made.of[2, 0]
        former.free.clear()
        made.fetchers.resize(3)
        await moved(made)
        assert list(made.of) == [(2, 0)]
        assert former.followed == {}
        # Meanwhile one partition gets a new role, and the broker stops following another.
        made.fetchers.follow([Follow(partitions[0], 3, 6)])
        made.fetchers.stop([partitions[1]])
        former.free.set()
        await moved(made)
        followed = {key: each.followed for key, each in made.of.items() if each.followed}
        assert followed == {(2, 0): {2: 5}, (2, 2): {3: 5}, (3, 2): {0: 6}}

    asyncio.run(run())


def test_fetchers_tell_only_those_of_a_broker_when_it_moves(partitions: list[PartitionHandle]) -> None:
    made = Made()
    made.fetchers.brokers({2: Address("b", 1), 3: Address("c", 1)}, 7)
    made.fetchers.follow([Follow(partitions[0], 2, 5), Follow(partitions[1], 3, 5)])
    made.of[3, 0].address = Address("untouched", 0)
    made.fetchers.brokers({2: Address("b", 2), 3: Address("c", 1)}, 8)
    assert made.of[2, 0].address == ("b", 2)
    assert made.of[2, 0].broker_epoch == made.of[3, 0].broker_epoch == 8
    assert made.of[3, 0].address == ("untouched", 0)
    made.fetchers.brokers({}, 8)
    assert made.of[2, 0].address is None


def test_fetchers_end_all_when_they_are_closed(partitions: list[PartitionHandle]) -> None:
    made = Made()
    made.fetchers.follow([Follow(partitions[0], 2, 5), Follow(partitions[1], 3, 5)])
    asyncio.run(made.fetchers.close())
    assert all(each.closed for each in made.of.values())


def test_fetchers_follow_nothing_when_metadata_arrives_after_their_close(partitions: list[PartitionHandle]) -> None:
    made = Made()
    asyncio.run(made.fetchers.close())
    made.fetchers.follow([Follow(partitions[0], 2, 5)])
    assert made.of == {}, "nobody would close this fetcher"
    assert made.fetchers.followed() == []


@pytest.mark.parametrize("lack", [OSError(errno.EMFILE, "Too many open files"), MemoryError()])
def test_fetcher_is_made_later_when_nothing_is_left_for_it(
    lack: Exception,
    partitions: list[PartitionHandle],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("kafkacore.replication.fetchers.RETRY_S", 0)

    async def run() -> None:
        made = Made()
        made.fetchers.follow([Follow(partitions[3], 3, 6)])
        made.lack = lack
        made.fetchers.follow([Follow(partitions[0], 2, 5), Follow(partitions[1], 2, 5), Follow(partitions[2], 3, 6)])
        assert list(made.of) == [(3, 0)]
        assert made.of[3, 0].followed == {2: 6, 3: 6}, "the other fetchers are not disturbed"
        await moved(made)
        assert caplog.text.count("fetcher 0 of broker 2 cannot be made") == 1
        made.fetchers.stop([partitions[1]])
        made.fetchers.brokers({2: Address("b", 9092)}, 7)
        made.lack = None
        await moved(made)
        assert made.of[2, 0].followed == {0: 5}
        assert made.of[2, 0].address == ("b", 9092)
        assert made.of[3, 0].followed == {2: 6, 3: 6}

    asyncio.run(run())


def test_partitions_keep_waiting_for_a_fetcher_when_the_number_changes(
    partitions: list[PartitionHandle], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkacore.replication.fetchers.RETRY_S", 0)

    async def run() -> None:
        made = Made()
        made.fetchers.follow([Follow(each, 2, 5) for each in partitions])
        made.lack = OSError(errno.ENFILE, "Too many open files in system")
        made.fetchers.resize(3)
        await moved(made)
        made.fetchers.resize(2)
        await moved(made)
        assert list(made.of) == [(2, 0)]
        made.lack = None
        await moved(made)
        followed = {key: sorted(each.followed) for key, each in made.of.items()}
        assert followed == {(2, 0): [1, 3], (2, 1): [0, 2]}
        assert not made.faults

    asyncio.run(run())


def test_fetchers_make_none_when_they_are_closed_before_the_next_attempt(
    partitions: list[PartitionHandle], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkacore.replication.fetchers.RETRY_S", 0)

    async def run() -> None:
        made = Made()
        made.lack = OSError(errno.EMFILE, "Too many open files")
        made.fetchers.follow([Follow(partitions[0], 2, 5)])
        await made.fetchers.close()
        made.lack = None
        await moved(made)
        assert made.of == {}

    asyncio.run(run())


def test_fault_is_reported_when_partitions_cannot_move(partitions: list[PartitionHandle]) -> None:
    async def run() -> None:
        made = Made()
        made.fetchers.follow([Follow(each, 2, 5) for each in partitions])
        made.lack = RuntimeError("broken")
        made.fetchers.resize(3)
        await moved(made)
        assert [str(each) for each in made.faults] == ["broken"]

    asyncio.run(run())
