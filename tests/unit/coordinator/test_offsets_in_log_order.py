"""Plain and transactional offset commits, deletions and transaction markers. The coordinator may apply them in a
different order than the log has. The result must be as if it had applied them in log order."""

import random
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore.coordinator.group.offsets import Offsets, Pending
from kafkacore.coordinator.group.records import CommittedOffset
from kafkacore.protocol.uuid import ZERO

GROUP, TOPIC = "g", "t"
PRODUCERS = (1, 2)
PARTITIONS = range(2)
FIRST = 10  # the offset of the first entry


def committed(number: int) -> CommittedOffset:
    return CommittedOffset(number, -1, "", 0, -1, ZERO)


class Live:
    """The offsets of a group under test. `log` holds the entries in log order. They are applied later, possibly in
    another order."""

    def __init__(self) -> None:
        self.offsets = Offsets()
        self.log: list[tuple[str, int, int]] = []
        self._appending: dict[int, ExitStack] = {}  # the unfinished appends of transactions, by position in the log

    def append(self, kind: str, producer_id: int = 0, partition: int = 0) -> int:
        """Appends an entry to the log. Returns its place."""
        at = FIRST + len(self.log)
        self.log.append((kind, producer_id, partition))
        if kind == "pending":
            self._appending[at] = ExitStack()
            named = self.offsets.appending(producer_id, [(GROUP, TOPIC, partition)])
            self._appending[at].enter_context(named)
        return at

    def apply(self, at: int) -> None:
        apply(self.offsets, at, *self.log[at - FIRST])
        if at in self._appending:
            self._appending.pop(at).close()

    def assert_as_replayed(self) -> None:
        again = Offsets()
        for number, entry in enumerate(self.log):
            apply(again, FIRST + number, *entry)
        assert shown(self.offsets) == shown(again), self.log


def apply(offsets: Offsets, at: int, kind: str, producer_id: int, partition: int) -> None:
    if kind == "plain":
        offsets.put(GROUP, TOPIC, partition, committed(at), at)
    elif kind == "delete":
        offsets.remove(GROUP, TOPIC, (partition,), at)
    elif kind == "pending":
        offsets.put_pending(producer_id, (GROUP, TOPIC, partition), Pending(at, committed(at)))
    else:
        list(offsets.end(producer_id, kind == "commit", at))


def shown(offsets: Offsets) -> tuple[object, object]:
    return {topic: dict(rows.items()) for topic, rows in offsets.of(GROUP).items()}, set(offsets.open_of(GROUP))


@pytest.mark.parametrize("order", ["plain first", "transaction first"])
@pytest.mark.parametrize("late", ["plain", "delete"])
def test_commit_or_deletion_that_arrives_late_decides_by_its_place(late: str, order: str) -> None:
    live = Live()
    live.apply(live.append("plain"))
    kinds = [late, "pending"] if order == "plain first" else ["pending", late]
    places = {kind: live.append(kind, 1) for kind in kinds}
    live.apply(places["pending"])
    live.apply(live.append("commit", 1))
    live.apply(places[late])
    live.assert_as_replayed()


@pytest.mark.parametrize("early", ["plain", "delete"])
def test_transactional_commit_that_is_known_late_counts_less_than_what_follows_it(early: str) -> None:
    live = Live()
    pending, follows = live.append("pending", 1), live.append(early)
    live.apply(follows)
    live.apply(pending)
    live.assert_as_replayed()
    live.apply(live.append("commit", 1))
    live.assert_as_replayed()


@pytest.mark.parametrize("kind", ["commit", "abort"])
def test_second_marker_that_is_applied_late_does_not_end_the_next_transaction(kind: str) -> None:
    live = Live()
    live.apply(live.append("pending", 1))
    late = live.append(kind, 1)
    live.apply(live.append(kind, 1))  # another coordinator has written the marker too
    live.apply(live.append("pending", 1))
    live.apply(late)
    live.assert_as_replayed()


def test_deletions_are_forgotten_when_no_batch_is_being_appended() -> None:
    live = Live()
    pending = live.append("pending", 1)
    live.apply(live.append("delete"))
    assert live.offsets._removed
    live.apply(pending)
    live.apply(live.append("delete"))
    assert not live.offsets._removed


def test_partition_is_open_as_soon_as_a_batch_is_being_appended() -> None:
    offsets = Offsets()
    offsets.put(GROUP, TOPIC, 0, committed(1), 1)
    with offsets.appending(1, [(GROUP, TOPIC, 0), (GROUP, TOPIC, 1)]):
        assert set(offsets.open_of(GROUP)) == {(TOPIC, 0), (TOPIC, 1)}
        offsets.remove(GROUP, TOPIC, (0,), 2)
        assert set(offsets.open_of(GROUP)) == {(TOPIC, 0), (TOPIC, 1)}, "the log may have the batch after the deletion"
        offsets.put_pending(1, (GROUP, TOPIC, 1), Pending(3, committed(3)))
    assert set(offsets.open_of(GROUP)) == {(TOPIC, 1)}, "the log has no pending offset for partition 0"
    with offsets.appending(1, [(GROUP, TOPIC, 1)]):
        pass
    assert set(offsets.open_of(GROUP)) == {(TOPIC, 1)}, "an earlier batch of the transaction is in the log"
    list(offsets.end(1, committed=True, at=4))
    assert not offsets.open_of(GROUP)


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_offsets_are_those_of_the_log_in_whatever_order_they_arrive(seed: int) -> None:
    chosen, live = random.Random(seed), Live()
    # Plain commits and deletions are applied in log order. So are all entries of one producer, except a marker that a
    # second marker follows.
    waiting: dict[int, list[int]] = {each: [] for each in (0, *PRODUCERS)}
    late: list[list[int]] = []
    for _ in range(chosen.randrange(4, 40)):
        producer_id = chosen.choice((0, *PRODUCERS))
        queue = waiting[producer_id]
        if queue and chosen.random() < 0.5:
            live.apply(queue.pop(0))
        elif producer_id == 0:
            queue.append(live.append(chosen.choice(("plain", "plain", "delete")), 0, chosen.choice(PARTITIONS)))
        elif not queue:  # a producer appends its next batch or marker only after the previous one was applied
            kind = chosen.choice(("pending", "pending", "commit", "abort"))
            if kind != "pending" and chosen.random() < 0.3:
                late.append([live.append(kind, producer_id)])
            queue.append(live.append(kind, producer_id, chosen.choice(PARTITIONS)))
    while left := [each for each in (*waiting.values(), *late) if each]:
        live.apply(chosen.choice(left).pop(0))
    live.assert_as_replayed()
