"""Bugs planted in a follower's native code: truncations to the leader's end, logs that begin anew, large batches,
batches of newer epochs, and the state of producers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from followed_leader import Replicas, batch, values
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.producer_states import producer_states
from kafkacore.protocol.errors import ErrorCode
from native_bugs import bug, with_and_without

EPOCH = 5
LARGE = 500  # more than the follower's limit for one partition
LIMIT = 200
PRODUCER = 4


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path, max_bytes=LIMIT)
    yield made
    made.close()


def produced(sequence: int, **fields: int) -> bytes:
    """Returns a batch of two records of an idempotent producer."""
    return batch(producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence, **fields)


def sequences(log: PartitionHandle) -> dict[int, int]:
    """Returns the last sequence number of each producer that the log knows."""
    return {each.producer_id: each.last_sequence for each in producer_states(log)}


def steps(replicas: Replicas, ours: PartitionHandle) -> None:
    """Exchanges some requests and answers. Waits for each truncation, and for each pause after an answer."""
    for _ in range(6):
        replicas.step()
        if replicas.fetcher.state(ours) in {"blocked", "cuts"}:
            replicas.until((ours, "fetches"))
        replicas.pass_time(1000)


@with_and_without
def test_record_past_the_leader_s_end_stays_when_the_bug_is_there(replicas: Replicas, is_there: bool) -> None:
    theirs, ours = replicas.pair()
    theirs.append(batch())
    replicas.catch_up((theirs, ours))
    # After an unclean election, the new leader lacks the last records of its own epoch.
    past = batch(b"past", base_offset=2, partition_leader_epoch=EPOCH)
    assert not ours.append_as_follower(past, EPOCH).error
    replicas.follow(ours, EPOCH + 1)
    replicas.leader.lead(theirs, EPOCH + 1)
    replicas.leader.errors[theirs.topic_id, 0] = ErrorCode.OFFSET_OUT_OF_RANGE
    replicas.step()
    replicas.leader.errors.clear()
    with bug("end-past-the-leader-kept", is_there):
        replicas.step()
        if not is_there:
            replicas.until((ours, "fetches"))
    assert ours.end_offset == (4 if is_there else 2)


def below_the_start(replicas: Replicas) -> tuple[PartitionHandle, PartitionHandle]:
    """Returns the logs of a leader and of a follower that ends below the leader's log start."""
    pair = theirs, _ = replicas.pair()
    theirs.append(produced(0))
    replicas.catch_up(pair)
    for _ in range(4):
        theirs.append(batch())
    theirs.delete_records(6)
    return pair


@with_and_without
def test_log_never_begins_anew_when_the_bug_is_there(replicas: Replicas, is_there: bool) -> None:
    theirs, ours = below_the_start(replicas)
    with bug("log-not-begun-anew", is_there):
        steps(replicas, ours)
    assert (ours.log_start_offset, ours.end_offset) == ((0, 2) if is_there else (6, 10))
    assert (values(ours) == values(theirs)) != is_there


@with_and_without
def test_log_that_begins_anew_keeps_its_epochs_when_the_bug_is_there(replicas: Replicas, is_there: bool) -> None:
    theirs, ours = below_the_start(replicas)
    with bug("epochs-kept-when-begun-anew", is_there):
        steps(replicas, ours)
    assert (ours.leader_epochs() == theirs.leader_epochs()) != is_there


@with_and_without
def test_log_that_begins_anew_keeps_its_producers_when_the_bug_is_there(replicas: Replicas, is_there: bool) -> None:
    _, ours = below_the_start(replicas)
    with bug("producers-kept-when-begun-anew", is_there):
        steps(replicas, ours)
    assert sequences(ours) == ({PRODUCER: 1} if is_there else {})


@with_and_without
def test_batch_above_the_limit_never_arrives_when_the_bug_is_there(replicas: Replicas, is_there: bool) -> None:
    theirs, ours = replicas.pair()
    theirs.append(batch())
    theirs.append(batch(b"v" * LARGE))
    theirs.append(batch())
    with bug("large-batch-withheld", is_there):
        steps(replicas, ours)
    assert ours.end_offset == (2 if is_there else 6)


@with_and_without
def test_batch_of_a_newer_epoch_is_appended_when_the_bug_is_there(replicas: Replicas, is_there: bool) -> None:
    _, ours = replicas.pair()
    with bug("newer-epoch-appended", is_there):
        ours.append_as_follower(batch(partition_leader_epoch=EPOCH + 1), EPOCH)
    assert ours.end_offset == (2 if is_there else 0)


@with_and_without
def test_follower_does_not_know_its_producers_when_the_bug_is_there(replicas: Replicas, is_there: bool) -> None:
    theirs, ours = replicas.pair()
    theirs.append(produced(0))
    theirs.append(produced(2))
    with bug("producers-behind-the-log", is_there):
        replicas.catch_up((theirs, ours))
    assert sequences(theirs) == {PRODUCER: 3}
    assert sequences(ours) == ({} if is_there else {PRODUCER: 3})
    ours.become_leader(1, EPOCH + 1, EPOCH + 1)
    again = ours.append(produced(2))
    assert again.duplicate != is_there, "a new leader must recognise the batch that the producer sends again"


@with_and_without
def test_producer_keeps_a_truncated_batch_when_the_bug_is_there(replicas: Replicas, is_there: bool) -> None:
    theirs, ours = replicas.pair()
    theirs.append(produced(0))
    replicas.catch_up((theirs, ours))
    lost = produced(2, base_offset=2, partition_leader_epoch=EPOCH)
    assert not ours.append_as_follower(lost, EPOCH).error
    with bug("producers-past-a-truncation", is_there):
        assert ours.truncate_as_follower(2, EPOCH) == 0
    assert sequences(ours) == {PRODUCER: 3 if is_there else 1}
    ours.become_leader(1, EPOCH + 1, EPOCH + 1)
    again = ours.append(produced(2))
    assert again.duplicate == is_there, "a truncated batch must be appended when its producer sends it again"
