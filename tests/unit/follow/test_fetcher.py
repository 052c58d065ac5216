"""A follower's fetches, appends and truncations. Its leader has real logs. The test itself carries the requests and
responses between the two."""

from __future__ import annotations

import errno
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from followed_leader import FOLLOWER, NOW, Replicas, batch, values
from kafkacore._fast.base.errors import ProtocolError
from kafkacore._fast.follow import followed
from kafkacore._fast.log import partition
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.producer_states import producer_states
from kafkacore._fast.log.replication_quota import BY_FOLLOWER, BY_LEADER, NO_BOUND, ReplicationQuota
from kafkacore._fast.world.environment import Environment, ManualClock
from kafkacore._fast.world.fault_disk import FaultDisk
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.made_ids import made_id
from kafkacore.storage import log_loader
from processes import wait_until


@pytest.fixture(autouse=True)
def everything_is_given_back() -> Iterator[None]:
    gc.collect()
    before = followed.live_count(), partition.live_count()
    yield
    gc.collect()
    assert (followed.live_count(), partition.live_count()) == before


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path)
    yield made
    made.close()


def named(request: Any) -> dict[int, int]:
    """Returns the fetch offset of each partition in a Fetch request."""
    return {each.partition: each.fetch_offset for topic in request.topics for each in topic.partitions}


def forgotten(request: Any) -> list[int]:
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


# --- fetches ---


def test_follower_has_the_leaders_records_when_it_has_fetched(replicas: Replicas) -> None:
    theirs, ours = replicas.pair()
    theirs.append(batch(b"first"))
    replicas.leader.lead(theirs, 6)
    theirs.append(batch(b"second"))
    replicas.follow(ours, 6)
    replicas.catch_up((theirs, ours))
    assert values(ours) == values(theirs)
    assert [epoch for _, epoch, _ in values(ours)] == [5, 5, 6, 6]
    assert ours.leader_epochs() == theirs.leader_epochs()
    assert ours.high_watermark == theirs.high_watermark == 4
    assert replicas.fetcher.lag(ours) == 0
    assert replicas.fetcher.counts().bytes == ours.size_bytes


def test_request_names_replica_and_broker_epoch_when_its_version_has_both(replicas: Replicas) -> None:
    replicas.pair()
    replicas.step()
    request = replicas.leader.seen[0]
    assert (request.replica_id, request.replica_state.replica_id, request.replica_state.replica_epoch) == (-1, 2, 77)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10485760)
    replicas.fetcher.connected(14, 11, 77)
    replicas.step()
    assert replicas.leader.seen[1].replica_id == FOLLOWER


def test_fetcher_sends_topic_names_while_it_follows_a_topic_without_an_id(replicas: Replicas) -> None:
    pairs = [replicas.pair(0)]
    replicas.step()
    assert replicas.leader.seen[-1].topics[0].topic_id == replicas.topic_id
    session = replicas.leader.session_id
    replicas.topic_id = made_id("orders")
    pairs.append(replicas.pair(1))
    for theirs, _ in pairs:
        theirs.append(batch(b"v"))
    asked = replicas.fetcher.ask()
    assert asked is not None
    assert asked[1] == 12, "the last version that identifies topics by name"
    replicas.fetcher.absorb(replicas.leader.answer(*asked))
    request = replicas.leader.seen[-1]
    assert (request.session_id, request.session_epoch) == (session, 0), "a session uses names or ids, never both"
    assert {topic.topic for topic in request.topics} == {"orders"}
    replicas.catch_up(*pairs)
    assert values(pairs[1][1]) == values(pairs[1][0])

    replicas.fetcher.stop(pairs[1][1])
    replicas.step()
    assert replicas.leader.seen[-1].session_epoch == 0
    assert named(replicas.leader.seen[-1]) == {0: 2}, "the new session must not contain the stopped partition"
    asked = replicas.fetcher.ask()
    assert asked is not None
    assert asked[1] == 18
    replicas.fetcher.absorb(replicas.leader.answer(*asked))


def test_session_hears_only_of_changes_when_it_goes_on(replicas: Replicas) -> None:
    pairs = [replicas.pair(index) for index in range(3)]
    replicas.step()
    assert named(replicas.leader.seen[-1]) == {0: 0, 1: 0, 2: 0}
    pairs[1][0].append(batch())
    replicas.catch_up(pairs[1])
    replicas.step()
    replicas.step()
    assert named(replicas.leader.seen[-2]) == {1: 2}
    assert named(replicas.leader.seen[-1]) == {}
    replicas.fetcher.stop(pairs[0][1])
    replicas.step()
    assert (named(replicas.leader.seen[-1]), forgotten(replicas.leader.seen[-1])) == ({}, [0])
    assert replicas.fetcher.state(pairs[0][1]) is None


def test_session_begins_anew_when_the_leader_has_lost_it(replicas: Replicas) -> None:
    theirs, ours = replicas.pair()
    replicas.step()
    replicas.leader.session = {}
    asked = replicas.fetcher.ask()
    assert asked is not None
    assert replicas.fetcher.absorb(replicas.leader.answer(*asked)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    theirs.append(batch())
    replicas.catch_up((theirs, ours))
    assert replicas.leader.seen[2].session_epoch == 0
    assert named(replicas.leader.seen[2]) == {0: 0}


def test_session_is_closed_and_begins_anew_when_an_answer_did_not_come(replicas: Replicas) -> None:
    theirs, ours = replicas.pair()
    replicas.step()
    session_id = replicas.fetcher.session[0]
    assert replicas.fetcher.ask() is not None
    assert replicas.fetcher.ask() is None, "only one request may be in flight"
    replicas.fetcher.failed()
    theirs.append(batch())
    replicas.catch_up((theirs, ours))
    request = replicas.leader.seen[1]
    assert (request.session_id, request.session_epoch, named(request)) == (session_id, 0, {0: 0})


def test_follower_goes_on_with_full_fetches_when_the_leader_keeps_no_session(replicas: Replicas) -> None:
    replicas.leader.keeps_sessions = False
    pairs = [replicas.pair(index) for index in range(2)]
    for theirs, _ in pairs:
        theirs.append(batch())
    replicas.catch_up(*pairs)
    replicas.step()
    assert replicas.leader.seen[-1].session_epoch == 0
    assert named(replicas.leader.seen[-1]) == {0: 2, 1: 2}


def test_nothing_is_asked_when_no_partition_is_followed(replicas: Replicas) -> None:
    assert replicas.fetcher.ask() is None
    _, ours = replicas.pair()
    replicas.step()
    replicas.fetcher.stop(ours)
    assert replicas.step(), "the follower must remove the partition from the session"
    assert not replicas.step()


def test_other_partitions_are_fetched_when_the_log_of_one_opens(replicas: Replicas) -> None:
    (theirs, ours), (more, also_ours) = replicas.pair(0), replicas.pair(1)
    theirs.append(batch())
    replicas.step()
    assert replicas.fetcher.state(ours) == "blocked"
    replicas.step()
    request = replicas.leader.seen[-1]
    assert forgotten(request) == [0]
    assert request.max_wait_ms < 500, "the opened log must not wait long for this request"
    replicas.until((ours, "fetches"))
    assert values(ours) == values(theirs), "the follower must append the received records, not fetch them again"
    more.append(batch())
    replicas.catch_up((theirs, ours), (more, also_ours))
    assert named(replicas.leader.seen[2]) == {0: 2}


def test_records_go_on_when_the_log_rolls(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, segment_bytes=1000, max_bytes=900)
    pair = theirs, ours = replicas.pair()
    for number in range(20):
        theirs.append(batch(b"%d" % number * 100))
    replicas.catch_up(pair)
    assert values(ours) == values(theirs)
    assert len(ours.segments()) > 3


def test_batches_come_one_by_one_when_a_fetch_holds_more_than_a_segment_may(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, segment_bytes=2000)
    pair = theirs, ours = replicas.pair()
    ours.configure(type(ours.settings)(segment_bytes=400))
    for number in range(4):
        theirs.append(batch(b"%d" % number * 80))
    replicas.catch_up(pair)
    assert values(ours) == values(theirs)


def test_log_start_follows_the_leaders_when_it_has_deleted_records(replicas: Replicas) -> None:
    pair = theirs, ours = replicas.pair()
    for _ in range(3):
        theirs.append(batch())
    replicas.catch_up(pair)
    replicas.step()
    theirs.delete_records(3)
    replicas.step()
    replicas.until((ours, "fetches"))
    assert ours.log_start_offset == 3
    replicas.step()
    (told,) = replicas.leader.seen[-1].topics[0].partitions
    assert told.log_start_offset == 3, "the request must contain the follower's log start offset"


def test_log_start_never_lags_behind_the_high_watermark_when_the_leader_has_deleted_records(replicas: Replicas) -> None:
    """The follower's log has diverging records at offsets where the leader has deleted its own. The diverging records
    never become readable."""
    theirs, ours = replicas.log(ours=False), replicas.log(ours=True)
    ours.become_leader(9, 5, 5)
    ours.append(batch(b"lost", 4))
    replicas.leader.lead(theirs, 7)
    theirs.append(batch(b"deleted", 4))
    theirs.append(batch(b"kept", 2))
    theirs.delete_records(4)
    replicas.follow(ours, 7)
    while ours.high_watermark < 6:
        replicas.step()
        assert ours.high_watermark <= 4 or ours.log_start_offset == 4
        if replicas.fetcher.state(ours) != "fetches":
            replicas.deliver()
    replicas.until((ours, "fetches"))
    assert values(ours) == values(theirs)
    assert ours.leader_epochs() == theirs.leader_epochs()


def test_log_begins_with_the_whole_batch_when_the_leaders_start_lies_within_it(replicas: Replicas) -> None:
    pair = theirs, ours = replicas.pair()
    theirs.append(batch(count=4))
    theirs.delete_records(2)
    theirs.append(batch())
    # The follower's log is truncated to the leader's start offset, which lies inside a batch.
    ours.truncate_fully(2)
    replicas.fetcher.stop(ours)
    replicas.fetcher.follow(ours, 5)
    replicas.catch_up(pair)
    assert values(ours) == values(theirs)
    replicas.step()
    replicas.until((ours, "fetches"))
    assert ours.log_start_offset == 2


# --- syncs ---


@pytest.fixture
def disk() -> Iterator[FaultDisk]:
    """Yields a disk that does not sync while `hold_syncs` is in force."""
    made = FaultDisk()
    yield made
    made.fail("sync", 0)


def hold_syncs(disk: FaultDisk) -> None:
    disk.fail("sync", errno.EMFILE)  # the committer waits for a free file descriptor


def with_flushes(tmp_path: Path, disk: FaultDisk, flush_messages: int) -> Replicas:
    return Replicas(tmp_path, environment=disk.environment(ManualClock(NOW)), flush_messages=flush_messages)


def append_unsynced(log: PartitionHandle) -> None:
    assert log.append(batch(), 1, wait=False).error == 0


def pair_in_session(replicas: Replicas) -> tuple[PartitionHandle, PartitionHandle]:
    """Returns the logs of a leader and of its follower, which has synced the leader's records and fetches again."""
    pair = theirs, ours = replicas.pair()
    append_unsynced(theirs)
    replicas.catch_up(pair)
    replicas.until((ours, "fetches"))
    replicas.step()
    return theirs, ours


def test_follower_fetches_again_only_after_the_sync_that_flush_messages_requires(
    tmp_path: Path, disk: FaultDisk
) -> None:
    """The next Fetch acknowledges the records to the leader."""
    replicas = with_flushes(tmp_path, disk, 1)
    theirs, ours = pair_in_session(replicas)
    hold_syncs(disk)
    append_unsynced(theirs)
    replicas.step()
    assert (replicas.fetcher.state(ours), ours.end_offset, ours.synced_offset) == ("syncs", 4, 2)
    asked = len(replicas.leader.seen)
    assert not replicas.step(), "a Fetch would only remove the partition from the session"
    disk.fail("sync", 0)
    replicas.until((ours, "fetches"))
    assert ours.synced_offset == 4
    replicas.step()
    assert (named(replicas.leader.seen[asked]), forgotten(replicas.leader.seen[asked])) == ({0: 4}, [])


def test_other_partitions_are_fetched_while_the_log_of_one_is_synced(tmp_path: Path, disk: FaultDisk) -> None:
    replicas = with_flushes(tmp_path, disk, 4)
    pairs = [replicas.pair(index) for index in range(2)]
    for theirs, _ in pairs:
        append_unsynced(theirs)
    replicas.catch_up(*pairs)
    replicas.step()
    (theirs, ours), (more, also_ours) = pairs
    assert (ours.end_offset, ours.synced_offset) == (2, 0), "two records need no sync"
    hold_syncs(disk)
    append_unsynced(theirs)
    replicas.step()
    assert replicas.fetcher.state(ours) == "syncs"
    replicas.step()
    assert forgotten(replicas.leader.seen[-1]) == [0]
    assert replicas.leader.seen[-1].max_wait_ms == 1, "producers wait for the partition of the synced log"
    more.append(batch(count=1), 1, wait=False)
    replicas.step()
    assert (replicas.fetcher.state(also_ours), also_ours.end_offset) == ("fetches", 3)
    disk.fail("sync", 0)
    replicas.until((ours, "fetches"))
    replicas.step()
    assert named(replicas.leader.seen[-1]) == {0: 4, 1: 3}


def test_sync_does_not_end_a_session_that_identifies_topics_by_name(tmp_path: Path, disk: FaultDisk) -> None:
    replicas = with_flushes(tmp_path, disk, 4)
    replicas.topic_id = made_id("orders")
    pairs = [replicas.pair(index) for index in range(2)]
    for theirs, _ in pairs:
        append_unsynced(theirs)
    replicas.catch_up(*pairs)
    theirs, ours = pairs[0]
    hold_syncs(disk)
    append_unsynced(theirs)
    replicas.step()
    assert replicas.fetcher.state(ours) == "syncs"
    replicas.step()
    request = replicas.leader.seen[-1]
    assert (request.session_epoch > 0, forgotten(request)) == (True, [0])
    disk.fail("sync", 0)
    replicas.until((ours, "fetches"))


def test_follower_fetches_only_after_a_sync_when_its_log_has_unsynced_records_of_an_earlier_run(
    tmp_path: Path, disk: FaultDisk
) -> None:
    replicas = with_flushes(tmp_path, disk, 100)
    pair = theirs, ours = replicas.pair()
    append_unsynced(theirs)
    replicas.catch_up(pair)
    hold_syncs(disk)
    ours.configure(type(ours.settings)(flush_messages=1))
    replicas.leader.lead(theirs, 6)
    replicas.follow(ours, 6)
    assert replicas.fetcher.state(ours) == "syncs"
    replicas.leader.lead(theirs, 7)
    replicas.follow(ours, 7)
    assert replicas.fetcher.state(ours) == "syncs"
    disk.fail("sync", 0)
    replicas.until((ours, "fetches"))
    assert ours.synced_offset == 2


def test_follower_never_acknowledges_records_when_their_sync_fails(tmp_path: Path, disk: FaultDisk) -> None:
    replicas = with_flushes(tmp_path, disk, 1)
    theirs, ours = pair_in_session(replicas)
    append_unsynced(theirs)
    # `flush` would ask for one more sync, which could fail and take the leader's log offline.
    wait_until(lambda: theirs.synced_offset == theirs.end_offset, 20, "the leader's log is synced")
    disk.fail("sync", errno.EIO)
    replicas.step()
    replicas.until((ours, "failed"))
    replicas.step()
    assert forgotten(replicas.leader.seen[-1]) == [0]


# --- truncations ---


def diverged(replicas: Replicas) -> tuple[Any, Any]:
    """Returns two logs that have epoch 5 up to offset 4. After that the follower's log continues in epoch 5, and the
    leader's log in epoch 7."""
    theirs, ours = replicas.log(ours=False), replicas.log(ours=True)
    for log in (theirs, ours):
        log.become_leader(9, 5, 5)
        log.append(batch(b"same", 4))
    ours.append(batch(b"lost", 3))
    replicas.leader.lead(theirs, 7)
    theirs.append(batch(b"kept", 2))
    return theirs, ours


def test_follower_cuts_its_log_when_it_diverges_from_the_leaders(replicas: Replicas) -> None:
    pair = theirs, ours = diverged(replicas)
    replicas.follow(ours, 7)
    replicas.catch_up(pair)
    replicas.step()
    replicas.catch_up(pair)
    assert values(ours) == values(theirs)
    assert ours.leader_epochs() == theirs.leader_epochs()
    assert [(each.kind, each.first, each.second) for each in replicas.fetcher.events()] == [("cut", 7, 4)]


def test_follower_cuts_step_by_step_when_it_has_several_epochs_that_the_leader_lacks(replicas: Replicas) -> None:
    pair = theirs, ours = diverged(replicas)
    ours.become_leader(9, 6, 6)
    ours.append(batch(b"lost too"))
    replicas.follow(ours, 7)
    replicas.catch_up(pair)
    for _ in range(4):
        replicas.step()
        replicas.catch_up(pair)
    assert values(ours) == values(theirs)


def test_epoch_without_records_goes_when_the_leader_does_not_have_it(replicas: Replicas) -> None:
    pair = theirs, ours = replicas.log(ours=False), replicas.log(ours=True)
    for log in pair:
        log.become_leader(9, 5, 5)
        log.append(batch())
    ours.become_leader(9, 6, 6)  # elected, then deposed before it appended a record
    replicas.leader.lead(theirs, 7)
    replicas.follow(ours, 7)
    replicas.step()
    replicas.until((ours, "fetches"))
    assert ours.leader_epochs() == [(5, 0)]
    theirs.append(batch())
    replicas.catch_up(pair)
    assert values(ours) == values(theirs)


def test_high_watermark_waits_for_the_next_answer_when_this_one_truncates(replicas: Replicas) -> None:
    _theirs, ours = diverged(replicas)
    replicas.follow(ours, 7)
    before = ours.high_watermark
    replicas.leader.change = lambda answer: setattr(answer.responses[0].partitions[0], "high_watermark", 1)
    replicas.step()
    replicas.until((ours, "fetches"))
    assert before == 7
    assert ours.high_watermark == ours.end_offset == 4


def test_log_is_cut_at_its_high_watermark_when_it_has_no_epoch(replicas: Replicas) -> None:
    pair = theirs, ours = replicas.log(ours=False), replicas.log(ours=True)
    ours.become_follower(1, 3, 3)
    first = batch(b"agreed", 3, partition_leader_epoch=-1)
    assert not ours.append_as_follower(first, 3).error
    assert not ours.append_as_follower(batch(b"lost", 2, base_offset=3, partition_leader_epoch=-1), 3).error
    ours.restore_high_watermark(3)
    theirs.become_follower(1, 3, 3)
    theirs.append_as_follower(first, 3)
    replicas.leader.lead(theirs, 7)
    theirs.append(batch(b"kept"))
    replicas.follow(ours, 7)
    replicas.until((ours, "fetches"))
    assert ours.end_offset == 3
    replicas.catch_up(pair)
    assert [value for *_, value in values(ours)] == [b"agreed"] * 3 + [b"kept"] * 2


def test_end_past_the_leaders_is_cut_when_the_leader_says_that_it_is_out_of_range(replicas: Replicas) -> None:
    pair = theirs, ours = replicas.pair()
    theirs.append(batch())
    replicas.catch_up(pair)
    assert not ours.append_as_follower(batch(b"past", base_offset=2, partition_leader_epoch=5), 5).error
    replicas.follow(ours, 6)
    replicas.leader.lead(theirs, 6)
    key = theirs.topic_id, theirs.index
    replicas.leader.errors[key] = ErrorCode.OFFSET_OUT_OF_RANGE
    replicas.step()
    assert replicas.fetcher.state(ours) == "asks-end"
    assert ours.end_offset == 4, "no record is deleted until the leader has returned its end offset"
    del replicas.leader.errors[key]
    replicas.step()
    assert replicas.leader.seen[-1].API_KEY == ApiKey.LIST_OFFSETS
    assert replicas.leader.seen[-1].replica_id == FOLLOWER
    replicas.until((ours, "fetches"))
    assert values(ours) == values(theirs)
    assert replicas.fetcher.events()[-1][:1] == ("cut-to-end",)


def test_log_begins_anew_when_its_end_is_below_the_leaders_start(replicas: Replicas) -> None:
    pair = theirs, ours = replicas.pair()
    theirs.append(batch(producer_id=4, producer_epoch=0, base_sequence=0))
    replicas.catch_up(pair)
    assert [each.producer_id for each in producer_states(ours)] == [4]
    for _ in range(4):
        theirs.append(batch())
    theirs.delete_records(6)
    replicas.step()
    assert replicas.fetcher.state(ours) == "asks-end"
    replicas.step()
    assert replicas.fetcher.state(ours) == "asks-start"
    replicas.step()
    replicas.until((ours, "fetches"))
    assert (ours.log_start_offset, ours.end_offset, ours.leader_epochs()) == (6, 6, [])
    assert producer_states(ours) == []
    replicas.catch_up(pair)
    assert values(ours) == values(theirs)


def emptied(replicas: Replicas) -> tuple[Any, Any]:
    """Returns two logs after the follower has learned where the leader's log starts. The leader's log is empty and
    starts at 6. The follower's log has no files."""
    theirs, ours = replicas.pair()
    for _ in range(3):
        theirs.append(batch())
    theirs.delete_records(6)
    for state in ("asks-end", "asks-start", "cuts"):
        replicas.step()
        assert replicas.fetcher.state(ours) == state
    return theirs, ours


def test_new_log_starts_where_the_leaders_empty_log_starts_when_it_is_loaded_again(replicas: Replicas) -> None:
    """The follower gets no records, so no append creates the files of its log."""
    _, ours = emptied(replicas)
    replicas.until((ours, "fetches"))
    assert [each.base_offset for each in ours.segments()] == [6]
    ours.shut()
    again = replicas.log(ours=True)
    log_loader.load(again, f"{again.directory.path}/orders-0", clean=True)
    assert (again.log_start_offset, again.end_offset, again.topic_id) == (6, 6, replicas.topic_id)


def test_partition_is_not_fetched_while_no_file_descriptor_is_free_for_its_new_log(tmp_path: Path) -> None:
    disk = FaultDisk()
    replicas = Replicas(tmp_path, environment=disk.environment(ManualClock(NOW)))
    theirs, ours = replicas.pair()
    theirs.append(batch())
    theirs.delete_records(2)
    replicas.step()
    replicas.step()
    disk.fail("names", errno.EMFILE)
    replicas.step()
    wait_until(lambda: disk.hits > 0, what="the follower does not create its log")
    assert replicas.fetcher.state(ours) == "cuts"
    disk.fail("names", 0)
    replicas.until((ours, "fetches"))
    assert ([each.base_offset for each in ours.segments()], ours.directory.offline_errno) == ([2], 0)
    replicas.close()


def test_empty_log_is_cut_when_it_starts_after_the_leaders_end(replicas: Replicas) -> None:
    """Otherwise the follower would join the ISR without the records that the leader appends below the follower's
    start."""
    theirs, ours = replicas.log(ours=False), replicas.log(ours=True)
    ours.become_follower(9, 5, 5)
    assert ours.restart_as_follower(6, 5) == 0
    replicas.leader.lead(theirs, 6)
    theirs.append(batch())
    replicas.follow(ours, 6)
    replicas.step()
    assert replicas.fetcher.state(ours) == "asks-end"
    replicas.step()
    replicas.until((ours, "fetches"))
    assert (ours.log_start_offset, ours.end_offset) == (2, 2)
    for _ in range(2):
        theirs.append(batch())
    replicas.catch_up((theirs, ours))
    assert values(ours) == values(theirs)[2:]


def test_follower_waits_and_fetches_again_when_its_offset_is_in_the_leaders_log_after_all(replicas: Replicas) -> None:
    pair = theirs, ours = replicas.pair()
    key = theirs.topic_id, theirs.index
    replicas.leader.errors[key] = ErrorCode.OFFSET_OUT_OF_RANGE
    replicas.step()
    del replicas.leader.errors[key]
    theirs.append(batch())
    replicas.step()
    replicas.step()
    assert replicas.fetcher.state(ours) == "delayed"
    replicas.pass_time(1000)
    replicas.catch_up(pair)
    assert values(ours) == values(theirs)


def test_partition_waits_when_list_offsets_leaves_it_out(replicas: Replicas) -> None:
    theirs, ours = replicas.pair()
    replicas.leader.errors[theirs.topic_id, 0] = ErrorCode.OFFSET_OUT_OF_RANGE
    replicas.step()
    replicas.leader.change = lambda answer: answer.topics.clear()
    replicas.step()
    assert replicas.fetcher.state(ours) == "delayed"


# --- refused records ---


def test_batch_is_refused_when_its_epoch_is_above_the_leaders(replicas: Replicas) -> None:
    theirs, ours = replicas.pair()
    theirs.append(batch(b"good"))

    def add_newer(answer: Any) -> None:
        data = answer.responses[0].partitions[0]
        data.records = bytes(data.records or b"") + batch(b"bad", base_offset=2, partition_leader_epoch=6)

    replicas.leader.change = add_newer
    replicas.catch_up((theirs, ours))
    assert values(ours) == values(theirs), "the batch before the refused one must be appended"
    replicas.step()
    assert replicas.fetcher.state(ours) == "delayed"
    assert values(ours) == values(theirs)
    assert replicas.fetcher.events() == [("newer-epoch", "orders", 0, 2, 5)]


def test_records_are_fetched_again_when_their_checksum_is_wrong(replicas: Replicas) -> None:
    pair = theirs, ours = replicas.pair()
    other = more, also_ours = replicas.pair(1)
    theirs.append(batch())
    more.append(batch())

    def damage(answer: Any) -> None:
        data = next(p for topic in answer.responses for p in topic.partitions if p.partition_index == 0)
        data.records = data.records[:-1] + bytes([data.records[-1] ^ 1])

    replicas.leader.change = damage
    replicas.step()
    replicas.until((also_ours, "fetches"))
    assert (replicas.fetcher.state(ours), ours.end_offset) == ("delayed", 0)
    assert replicas.fetcher.events()[0].kind == "corrupt"
    replicas.leader.change = lambda answer: None
    replicas.catch_up(other)
    assert ours.end_offset == 0, "the follower must wait for replica.fetch.backoff.ms"
    assert replicas.pass_time(999) == 1000
    replicas.pass_time(1)
    replicas.catch_up(pair, other)
    assert values(ours) == values(theirs)


def test_answer_changes_nothing_when_a_newer_epoch_came_meanwhile(replicas: Replicas) -> None:
    theirs, ours = replicas.pair()
    theirs.append(batch())
    asked = replicas.fetcher.ask()
    assert asked is not None
    late = replicas.leader.answer(*asked)
    replicas.follow(ours, 6)
    replicas.fetcher.absorb(late)
    assert ours.end_offset == 0
    assert replicas.fetcher.state(ours) == "fetches"
    replicas.leader.lead(theirs, 6)
    replicas.catch_up((theirs, ours))


def test_answer_changes_nothing_when_the_log_was_cut_meanwhile(replicas: Replicas) -> None:
    pair = theirs, ours = replicas.pair()
    theirs.append(batch())
    replicas.catch_up(pair)
    theirs.append(batch())
    asked = replicas.fetcher.ask()
    assert asked is not None
    late = replicas.leader.answer(*asked)
    ours.truncate_to(0)
    replicas.fetcher.absorb(late)
    assert ours.end_offset == 0, "records at offset 2 would leave a hole"
    replicas.catch_up(pair)
    assert values(ours) == values(theirs)


def test_answer_changes_nothing_when_the_partition_was_stopped_meanwhile(replicas: Replicas) -> None:
    theirs, ours = replicas.pair()
    theirs.append(batch())
    asked = replicas.fetcher.ask()
    assert asked is not None
    late = replicas.leader.answer(*asked)
    replicas.fetcher.stop(ours)
    ours.become_leader(FOLLOWER, 6, 6)
    replicas.fetcher.absorb(late)
    assert ours.end_offset == 0


def test_partition_fails_until_its_next_role_when_the_leader_has_a_newer_epoch(replicas: Replicas) -> None:
    pair = theirs, ours = replicas.pair()
    replicas.leader.lead(theirs, 6)
    replicas.step()
    assert replicas.fetcher.state(ours) == "failed"
    replicas.fetcher.count()
    assert replicas.fetcher.counts().failed == 1
    assert replicas.pass_time(100_000) == -1, "no time must be due: only a new role ends this state"
    replicas.follow(ours, 6)
    theirs.append(batch())
    replicas.catch_up(pair)


@pytest.mark.parametrize(
    ("error", "is_told"),
    [
        (ErrorCode.UNKNOWN_LEADER_EPOCH, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.UNKNOWN_TOPIC_ID, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
    ],
)
def test_partition_waits_for_its_backoff_when_the_leader_refuses_it(
    replicas: Replicas, error: ErrorCode, is_told: bool
) -> None:
    pair = theirs, ours = replicas.pair()
    other = replicas.pair(1)
    replicas.leader.errors[theirs.topic_id, 0] = error
    replicas.step()
    assert replicas.fetcher.state(ours) == "delayed"
    assert bool(replicas.fetcher.events()) == is_told
    replicas.leader.errors.clear()
    theirs.append(batch())
    other[0].append(batch())
    replicas.catch_up(other)
    assert ours.end_offset == 0
    replicas.pass_time(1000)
    replicas.catch_up(pair)


def delay_after_refusal(replicas: Replicas) -> int:
    """Lets the leader refuse a Fetch. Returns the delay in ms, after it has passed."""
    replicas.step()
    delay_ms = replicas.fetcher.due_ms - replicas.now_ms
    replicas.pass_time(delay_ms)
    return delay_ms


def test_delays_begin_short_and_double_while_the_other_broker_does_not_lead_yet(replicas: Replicas) -> None:
    pair = theirs, ours = replicas.pair()
    key = theirs.topic_id, theirs.index
    replicas.leader.errors[key] = ErrorCode.UNKNOWN_LEADER_EPOCH
    delays = [delay_after_refusal(replicas) for _ in range(9)]
    assert delays == [10, 20, 40, 80, 160, 320, 640, 1000, 1000]

    del replicas.leader.errors[key]
    theirs.append(batch())
    replicas.catch_up(pair)
    replicas.leader.errors[key] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert delay_after_refusal(replicas) == 10, "a successful Fetch must end the series"
    assert delay_after_refusal(replicas) == 20
    replicas.follow(ours, 6)
    assert delay_after_refusal(replicas) == 10, "a new role must end the series"


def test_partition_with_a_short_delay_is_fetched_before_a_partition_with_a_long_one(replicas: Replicas) -> None:
    long, short = replicas.pair(0), replicas.pair(1)
    replicas.leader.errors[long[0].topic_id, 0] = ErrorCode.KAFKA_STORAGE_ERROR
    replicas.leader.errors[short[0].topic_id, 1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    replicas.step()
    replicas.leader.errors.clear()
    assert replicas.pass_time(0) == replicas.now_ms + 10
    assert replicas.pass_time(10) == replicas.now_ms + 990
    assert [replicas.fetcher.state(ours) for _, ours in (long, short)] == ["delayed", "fetches"]


def test_answer_is_refused_when_it_cannot_be_read(replicas: Replicas) -> None:
    pair = theirs, _ = replicas.pair()
    theirs.append(batch())
    asked = replicas.fetcher.ask()
    assert asked is not None
    with pytest.raises(ProtocolError):
        replicas.fetcher.absorb(replicas.leader.answer(*asked)[:-3])
    replicas.fetcher.failed()
    replicas.catch_up(pair)


def test_partition_fails_when_its_disk_is_gone_although_no_records_arrive(replicas: Replicas) -> None:
    theirs, ours = replicas.pair()
    theirs.append(batch())
    replicas.catch_up((theirs, ours))
    ours.fail(errno.EIO)
    replicas.step()
    assert replicas.fetcher.state(ours) == "failed", "its fetches would keep a broken replica in the ISR"
    assert replicas.fetcher.events()[-1].kind == "failed"
    asked = len(replicas.leader.seen)
    replicas.step()
    assert forgotten(replicas.leader.seen[asked]) == [0]
    replicas.leader.lead(theirs, 6)
    replicas.follow(ours, 6)
    assert replicas.fetcher.state(ours) == "failed"
    assert not replicas.step(), "a fetch would let the broken replica join the ISR again"


def test_idle_partition_is_not_fetched_when_its_disk_is_gone_and_its_isr_changes(replicas: Replicas) -> None:
    theirs, ours = replicas.pair()
    theirs.append(batch())
    replicas.catch_up((theirs, ours))
    replicas.step()
    ours.fail(errno.EIO)
    replicas.fetcher.follow(ours, 5)
    assert replicas.fetcher.state(ours) == "failed", "a fetch would let the broken replica join the ISR again"
    replicas.step()
    assert forgotten(replicas.leader.seen[-1]) == [0]


def test_partition_fails_when_its_disk_is_gone(replicas: Replicas) -> None:
    theirs, ours = replicas.pair()
    theirs.append(batch())
    replicas.catch_up((theirs, ours))
    ours.fail(5)
    theirs.append(batch())
    replicas.step()
    assert replicas.fetcher.state(ours) == "failed"
    assert replicas.fetcher.events()[0].kind == "failed"


def test_partition_is_fetched_again_when_its_deletion_has_waited_for_a_file_descriptor(tmp_path: Path) -> None:
    disk = FaultDisk()
    replicas = Replicas(tmp_path, environment=disk.environment(ManualClock(NOW)), segment_bytes=300)
    pair = theirs, ours = replicas.pair()
    for _ in range(8):
        theirs.append(batch())
    replicas.catch_up(pair)
    replicas.step()
    theirs.delete_records(12)
    disk.fail("names", errno.EMFILE)
    replicas.step()
    assert replicas.fetcher.state(ours) == "cuts"
    wait_until(lambda: disk.hits > 0, 10, "the deletion to find no file descriptor")
    disk.fail("names", 0)
    replicas.deliver()
    assert (replicas.fetcher.state(ours), ours.log_start_offset) == ("fetches", 12)
    theirs.append(batch())
    replicas.catch_up(pair)
    ours.fail(errno.EIO)
    theirs.delete_records(14)
    replicas.step()
    replicas.until((ours, "failed"))
    replicas.close()


# --- roles ---


def test_truncation_ends_and_nothing_more_is_appended_when_the_partition_is_stopped_in_it(replicas: Replicas) -> None:
    _, ours = diverged(replicas)
    replicas.follow(ours, 7)
    replicas.step()
    assert replicas.fetcher.state(ours) == "cuts"
    replicas.fetcher.stop(ours)
    while replicas.fetcher.jobs:
        replicas.deliver()
    replicas.step()
    assert replicas.fetcher.state(ours) is None
    assert ours.end_offset == 4


def test_partition_is_given_back_when_its_truncation_ends_after_everything_was_stopped(replicas: Replicas) -> None:
    _, ours = diverged(replicas)
    replicas.follow(ours, 7)
    replicas.step()
    replicas.fetcher.stop_all()
    assert replicas.fetcher.partitions == 1, "the job still uses the partition's log"
    while replicas.fetcher.jobs:
        replicas.deliver()
    assert replicas.fetcher.partitions == 0


def test_partition_is_given_back_without_a_request_when_the_connection_is_lost(replicas: Replicas) -> None:
    _, ours = replicas.pair()
    replicas.step()
    replicas.fetcher.stop(ours)
    assert replicas.fetcher.state(ours) == "gone"
    replicas.fetcher.failed()
    assert replicas.fetcher.state(ours) is None


def test_follower_begins_again_when_a_new_epoch_comes_in_a_truncation(replicas: Replicas) -> None:
    pair = theirs, ours = diverged(replicas)
    replicas.follow(ours, 7)
    replicas.step()
    assert replicas.fetcher.jobs == 1
    replicas.leader.lead(theirs, 8)
    replicas.follow(ours, 8)
    replicas.until((ours, "fetches"))
    replicas.catch_up(pair)
    replicas.step()
    replicas.catch_up(pair)
    assert values(ours) == values(theirs)


def test_kept_records_are_dropped_when_a_new_epoch_comes_before_the_log_is_open(replicas: Replicas) -> None:
    theirs, ours = replicas.pair()
    theirs.append(batch())
    replicas.step()
    assert replicas.fetcher.state(ours) == "blocked"
    replicas.follow(ours, 6)
    assert replicas.fetcher.state(ours) == "fetches"
    assert ours.end_offset == 0
    replicas.leader.lead(theirs, 6)
    replicas.catch_up((theirs, ours))
    assert values(ours) == values(theirs)


def test_follower_takes_the_new_log_when_the_partition_came_back_to_this_broker(replicas: Replicas) -> None:
    theirs, ours = replicas.pair()
    replicas.step()
    other = replicas.log(7, ours=True)
    assert replicas.fetcher.state(other) is None
    ours.close(gone=True)
    again = replicas.log(ours=True)
    replicas.follow(again, 5)
    theirs.append(batch())
    replicas.catch_up((theirs, again))
    assert replicas.fetcher.session[2] == 1


# --- throttles (KIP-73) ---


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def throttled(tmp_path: Path, clock: ManualClock) -> Iterator[Replicas]:
    """Makes a leader and a follower with throttled replicas. Each Fetch returns one batch per partition. The test
    advances the clock."""
    made = Replicas(
        tmp_path,
        max_bytes=1,
        environment=Environment(clock),
        quota=ReplicationQuota(samples=2, sample_ms=1000, bytes_per_second=1),
    )
    yield made
    made.close()


def behind(replicas: Replicas, *throttles: int) -> list[tuple[Any, Any]]:
    """Makes one pair of logs (the leader's and the follower's) for each of these throttles. The leader's log has four
    more batches of two records each. The followers' logs are open."""
    pairs = [replicas.pair(index) for index in range(len(throttles))]
    for theirs, _ in pairs:
        theirs.append(batch())
    replicas.catch_up(*pairs)
    for (theirs, ours), bits in zip(pairs, throttles, strict=True):
        ours.throttled = bits
        for _ in range(4):
            theirs.append(batch())
    return pairs


def test_throttled_partition_leaves_the_session_while_the_quota_is_used_up(
    throttled: Replicas, clock: ManualClock
) -> None:
    (_, slow), (_, fast) = behind(throttled, BY_FOLLOWER, 0)
    throttled.step()
    assert (slow.end_offset, fast.end_offset) == (4, 4), "the quota was not used up before this Fetch"
    throttled.step()
    assert (named(throttled.leader.seen[-1]), forgotten(throttled.leader.seen[-1])) == ({1: 4}, [0])
    assert (slow.end_offset, fast.end_offset, throttled.fetcher.state(slow)) == (4, 6, "delayed")
    throttled.pass_time(1000)
    throttled.step()
    assert (slow.end_offset, fast.end_offset) == (4, 8), "the window of the quota has not passed"
    clock.advance_ms(3000)
    throttled.pass_time(1000)
    throttled.step()
    assert named(throttled.leader.seen[-1])[0] == 4
    assert (slow.end_offset, fast.end_offset) == (6, 10)


def test_throttled_partition_goes_on_when_it_has_caught_up_or_the_bound_is_gone(throttled: Replicas) -> None:
    ((theirs, ours),) = behind(throttled, BY_FOLLOWER)
    quota = throttled.quota
    assert quota is not None
    throttled.step()
    assert not throttled.step() or forgotten(throttled.leader.seen[-1]) == [0]
    assert not throttled.step(), "no other partition is followed"
    quota.bytes_per_second = NO_BOUND
    throttled.pass_time(1000)
    throttled.catch_up((theirs, ours))
    used = quota.rate(throttled.environment.monotonic_ns() // 1_000_000)
    assert used > 1, "the bytes of a throttled partition must count even without a bound"
    quota.bytes_per_second = 1
    throttled.step()
    theirs.append(batch())
    throttled.step()
    assert ours.end_offset == theirs.end_offset, "a follower that is in sync must not be throttled"


def test_partition_without_a_throttle_does_not_use_the_quota(throttled: Replicas) -> None:
    throttled.catch_up(*behind(throttled, BY_LEADER))
    assert throttled.quota is not None
    assert throttled.quota.rate(throttled.environment.monotonic_ns() // 1_000_000) == 0


def test_partition_shows_its_lag_from_its_first_fetch_until_it_is_stopped(replicas: Replicas) -> None:
    theirs, ours = replicas.pair()
    assert ours.fetch_lag == -1
    theirs.append(batch())
    replicas.catch_up((theirs, ours))
    replicas.step()
    assert ours.fetch_lag == 0
    replicas.fetcher.stop(ours)
    assert ours.fetch_lag == -1
