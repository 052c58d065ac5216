"""controller.quorum.append.linger.ms limits how long a change waits for the append before it."""

from __future__ import annotations

from kafkacore._fast.record.batch import Batches
from kafkacore.raft import messages
from kafkacore.raft.core import Answer
from kafkacore.raft.log import OffsetAndEpoch
from raft_replica import CLUSTER, OTHER, Replica, naming

LINGER_MS = 25


def leader(*node_ids: int) -> Replica:
    """Returns a leader whose log is fully committed."""
    replica = Replica(*node_ids, append_linger_ms=LINGER_MS)
    replica.lead()
    commit(replica)
    assert replica.raft.high_watermark == replica.log.end_offset
    return replica


def commit(replica: Replica) -> None:
    """Makes node 2 fetch to the end of the log, which commits all records."""
    replica.fetch_of(2, replica.log.end_offset, replica.raft.epoch)


def values(replica: Replica, start: int) -> list[bytes]:
    return [record.value for batch in Batches(replica.log.read(start, 1 << 20)) for record in batch]


def test_change_is_appended_at_once_when_no_append_is_in_flight() -> None:
    replica = leader(1, 2, 3)
    end = replica.log.end_offset
    assert replica.raft.append([b"a"]) == end
    assert replica.log.end_offset == end + 1
    commit(replica)
    assert replica.raft.append([b"b"]) == end + 1
    assert replica.log.end_offset == end + 2


def test_changes_collect_until_the_append_in_flight_is_committed() -> None:
    replica = leader(1, 2, 3)
    end = replica.log.end_offset
    offsets = [replica.raft.append([value]) for value in (b"a", b"b", b"c")]
    assert offsets == [end, end + 1, end + 2]
    assert (replica.log.end_offset, replica.raft.end_offset) == (end + 1, end + 3)
    replica.settle()
    # The Fetch that commits the first change also returns the other changes.
    _, answer = replica.fetch_of(2, end + 1, replica.raft.epoch)
    assert replica.log.end_offset == end + 3
    assert answer.high_watermark == end + 1
    assert bytes(answer.records) == replica.log.read(end + 1, 1 << 20)
    assert values(replica, end) == [b"a", b"b", b"c"]


def test_change_waits_for_the_linger_time_at_most() -> None:
    replica = leader(1, 2, 3)
    end = replica.log.end_offset
    replica.raft.append([b"a"])
    replica.raft.append([b"b"])
    assert replica.raft.next_tick_ms <= replica.now + LINGER_MS
    replica.now += LINGER_MS - 1
    replica.raft.tick(replica.now)
    replica.raft.append([b"c"])
    assert replica.log.end_offset == end + 1
    replica.now += 1
    replica.raft.tick(replica.now)
    assert replica.log.end_offset == end + 3


def test_changes_that_wait_are_in_no_log_when_the_leadership_is_lost() -> None:
    replica = leader(1, 2, 3)
    end = replica.log.end_offset
    replica.raft.append([b"a"])
    replica.raft.append([b"b"])
    replica.ask(naming("Vote", replica.raft.epoch + 1))
    assert (replica.log.end_offset, replica.raft.end_offset) == (end + 1, end + 1)


def test_changes_that_wait_are_in_the_log_when_the_node_shuts_down() -> None:
    replica = leader(1, 2, 3)
    end = replica.log.end_offset
    replica.raft.append([b"a"])
    replica.raft.append([b"b"])
    replica.raft.resign()
    assert replica.log.end_offset == end + 2


def test_waiting_fetch_gets_all_changes_that_waited_in_one_answer() -> None:
    replica = leader(1, 2, 3)
    end = replica.log.end_offset
    replica.raft.append([b"a"])
    for value in (b"b", b"c"):
        replica.raft.append([value])
    replica.settle()
    request = messages.fetch(CLUSTER, OTHER, replica.raft.epoch, OffsetAndEpoch(end + 1, replica.raft.epoch), end)
    replica.raft.take_outputs()
    replica.raft.request("fetch", request, replica.now)
    replica.settle()
    [answer] = [each for each in replica.raft.take_outputs() if isinstance(each, Answer)]
    partition = messages.answered(answer.response)[1]
    assert [batch.base_offset for batch in Batches(bytes(partition.records))] == [end + 1, end + 2]
