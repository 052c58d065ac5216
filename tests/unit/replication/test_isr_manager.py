"""A leader asks the controller for changes of its ISRs, and applies the answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pytest

from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.partitions import RECOVERED, RECOVERING, Partition
from kafkacore.metadata.publishing import MetadataPublisher
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.replication import isr_manager
from kafkacore.replication.isr_manager import IsrManager

TOPIC = Uuid(b"t" * 16)
DIRECTORY = Uuid(b"d" * 16)
ME, TWO, THREE = 1, 2, 3
EPOCHS = {ME: 101, TWO: 102, THREE: 103}


class Follower(NamedTuple):
    broker_id: int
    broker_epoch: int
    may_join: bool = True
    must_leave: bool = False


class Log:
    """A stub of a partition, with the attributes that native code offers."""

    def __init__(self, index: int) -> None:
        self.topic, self.index = "t", index
        self.role, self.state = "leader", "open"
        self.leader_epoch = self.partition_epoch = 0
        self.isr: list[int] = []
        self.recovering = False
        self.proposed: list[int] | None = None
        self.seen = {each: Follower(each, EPOCHS[each]) for each in (TWO, THREE)}

    def followers(self) -> Sequence[Follower]:
        return list(self.seen.values())

    def propose_isr(self, isr: Iterable[int], partition_epoch: int) -> bool:
        if self.proposed is not None or partition_epoch != self.partition_epoch:
            return False
        self.proposed = list(isr)
        return True

    def withdraw_isr(self) -> None:
        self.proposed = None

    def commit_isr(self, isr: Iterable[int], leader_epoch: int, partition_epoch: int, recovering: bool = False) -> bool:
        assert leader_epoch == self.leader_epoch
        self.isr, self.partition_epoch, self.recovering, self.proposed = list(isr), partition_epoch, recovering, None
        return True

    def follow_row(self, row: Partition) -> None:
        if row.partition_epoch >= self.partition_epoch:
            self.role = "leader" if row.leader == ME else "follower"
            if row.partition_epoch > self.partition_epoch:
                self.proposed = None
            self.leader_epoch, self.partition_epoch, self.isr = row.leader_epoch, row.partition_epoch, list(row.isr)
            self.recovering = row.recovery_state == RECOVERING


class World:
    """A topic with replicas on all three brokers. Broker ME leads it and has the ISR manager under test."""

    def __init__(self, partitions: int = 1, isr: Sequence[int] = (ME,), state: int = RECOVERED) -> None:
        self.logs = {(TOPIC, index): Log(index) for index in range(partitions)}
        self.publisher = MetadataPublisher()
        self.isrs = IsrManager(ME, self.logs.get, lambda: EPOCHS[ME], lambda key: key)
        self.publisher.subscribe(self._apply)
        self.commit(FeatureLevelRecord(name="metadata.version", feature_level=29))
        rows = [
            PartitionRecord(
                topic_id=TOPIC, partition_id=index, replicas=[ME, TWO, THREE], isr=list(isr), leader=ME,
                leader_epoch=0, partition_epoch=0, leader_recovery_state=state, directories=[DIRECTORY] * 3,
            )
            for index in range(partitions)
        ]  # fmt: skip
        self.commit(TopicRecord(name="t", topic_id=TOPIC), *rows)

    def _apply(self, image: MetadataImage, delta: Any) -> None:
        for (topic_id, index), log in self.logs.items():
            topic = image.topic_by_id(topic_id)
            row = None if topic is None else image.partition(topic, index)
            if row is not None:
                log.follow_row(row)
        self.isrs.applied(image)

    def commit(self, *records: Any) -> None:
        self.publisher.apply(records, self.publisher.applied_offset + 1, 1, 1)

    @property
    def log(self) -> Log:
        return self.logs[TOPIC, 0]

    def look(self) -> None:
        self.isrs.look(self.logs)

    def asked(self) -> list[Any]:
        """Returns the partitions in the next request."""
        request = self.isrs.request()
        assert isinstance(request, AlterPartitionRequest)
        assert (request.broker_id, request.broker_epoch) == (ME, EPOCHS[ME])
        return [each for topic in request.topics for each in topic.partitions]

    def answer(self, *results: Any, error: int = 0) -> bool:
        topics = [AlterPartitionResponse.TopicData(topic_id=TOPIC, partitions=list(results))] if results else []
        return self.isrs.answered(AlterPartitionResponse(error_code=error, topics=topics))


def isr_of(asked: Any) -> list[tuple[int, int]]:
    return [(each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs]


def accepted(isr: Sequence[int], partition_epoch: int = 1, index: int = 0, leader_epoch: int = 0) -> Any:
    return AlterPartitionResponse.PartitionData(
        partition_index=index, leader_id=ME, leader_epoch=leader_epoch, isr=list(isr), partition_epoch=partition_epoch
    )


def refused(error: ErrorCode, index: int = 0) -> Any:
    return AlterPartitionResponse.PartitionData(partition_index=index, error_code=error)


def change(**fields: Any) -> Any:
    return PartitionChangeRecord(topic_id=TOPIC, partition_id=0, **fields)


def test_followers_that_caught_up_join_with_their_broker_epochs() -> None:
    world = World()
    world.look()
    [asked] = world.asked()
    assert isr_of(asked) == [(ME, 101), (TWO, 102), (THREE, 103)]
    assert (asked.leader_epoch, asked.partition_epoch, asked.leader_recovery_state) == (0, 0, RECOVERED)
    # From now on, the high watermark waits for both followers.
    assert world.log.proposed == [ME, TWO, THREE]
    assert world.answer(accepted([ME, TWO, THREE]))
    assert (world.log.isr, world.log.partition_epoch) == ([ME, TWO, THREE], 1)
    assert (world.isrs.counts.expands, world.isrs.counts.shrinks, world.isrs.counts.failed) == (1, 0, 0)


def test_follower_that_fell_behind_leaves() -> None:
    world = World(isr=[ME, TWO, THREE])
    world.log.seen[THREE] = Follower(THREE, 103, may_join=False, must_leave=True)
    world.look()
    [asked] = world.asked()
    assert isr_of(asked) == [(ME, 101), (TWO, 102)]
    assert world.answer(accepted([ME, TWO]))
    assert world.log.isr == [ME, TWO]
    assert (world.isrs.counts.expands, world.isrs.counts.shrinks) == (0, 1)


def test_no_follower_leaves_when_the_log_of_the_leader_has_failed() -> None:
    world = World(isr=[ME, TWO, THREE])
    world.log.seen = {each: Follower(each, EPOCHS[each], may_join=False, must_leave=True) for each in (TWO, THREE)}
    world.log.state = "failed"
    world.look()
    assert world.isrs.request() is None, "the others must stay eligible, because they have the records and can lead"


def test_nothing_is_asked_when_the_isr_is_right() -> None:
    world = World(isr=[ME, TWO])
    world.log.seen[THREE] = Follower(THREE, 103, may_join=False)
    world.look()
    assert world.isrs.request() is None
    assert world.log.proposed is None


def test_changes_that_come_while_a_request_is_under_way_wait_for_its_answer() -> None:
    world = World(partitions=2)
    world.logs[TOPIC, 1].seen = {}
    world.log.seen[THREE] = Follower(THREE, 103, may_join=False)
    world.look()
    assert [each.partition_index for each in world.asked()] == [0]
    world.log.seen[THREE] = Follower(THREE, 103)
    world.logs[TOPIC, 1].seen = {TWO: Follower(TWO, 102)}
    world.look()
    assert world.isrs.request() is None
    world.answer(accepted([ME, TWO]))
    later = {each.partition_index: each for each in world.asked()}
    assert isr_of(later[0]) == [(ME, 101), (TWO, 102), (THREE, 103)]
    assert later[0].partition_epoch == 1
    assert isr_of(later[1]) == [(ME, 101), (TWO, 102)]


def test_many_changes_share_a_request_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_manager, "MAX_PER_REQUEST", 3)
    world = World(partitions=5)
    world.look()
    assert [each.partition_index for each in world.asked()] == [0, 1, 2]
    world.answer(*[accepted([ME, TWO, THREE], index=index) for index in range(3)])
    assert [each.partition_index for each in world.asked()] == [3, 4]


def test_request_is_sent_again_when_it_had_no_answer() -> None:
    world = World()
    world.look()
    first = world.asked()
    world.isrs.lost()
    assert world.asked() == first
    assert world.log.proposed == [ME, TWO, THREE]


@pytest.mark.parametrize("error", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
def test_request_is_sent_again_when_the_controller_refuses_all_of_it(error: ErrorCode) -> None:
    world = World()
    world.look()
    first = world.asked()
    assert not world.answer(error=error)
    assert world.asked() == first


def test_partition_that_the_answer_leaves_out_is_sent_again() -> None:
    world = World(partitions=2)
    world.look()
    world.asked()
    assert not world.answer(accepted([ME, TWO, THREE], index=1))
    assert [each.partition_index for each in world.asked()] == [0]


def test_partition_is_sent_again_when_its_error_is_unexpected() -> None:
    world = World()
    world.look()
    first = world.asked()
    assert not world.answer(refused(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert world.asked() == first
    assert world.isrs.counts.failed == 1


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_proposal_waits_for_metadata_when_the_controller_is_ahead(error: ErrorCode) -> None:
    world = World()
    world.look()
    world.asked()
    assert world.answer(refused(error))
    world.look()
    assert world.isrs.request() is None
    # The high watermark still waits for all replicas that may be in the ISR by now.
    assert world.log.proposed == [ME, TWO, THREE]
    assert world.isrs.counts.failed == 1
    world.commit(change(isr=[ME, TWO]))
    [asked] = world.asked()
    assert (isr_of(asked), asked.partition_epoch) == ([(ME, 101), (TWO, 102), (THREE, 103)], 1)


def test_proposal_is_withdrawn_and_made_anew_when_a_replica_is_ineligible() -> None:
    world = World()
    world.look()
    world.asked()
    # The controller knows that broker 2 has restarted. The next check of the followers shows it, too.
    world.log.seen[TWO] = Follower(TWO, 102, may_join=False)
    assert not world.answer(refused(ErrorCode.INELIGIBLE_REPLICA))
    assert world.log.proposed == [ME, THREE]
    assert isr_of(world.asked()[0]) == [(ME, 101), (THREE, 103)]
    assert world.isrs.counts.failed == 1


def test_leader_that_was_elected_uncleanly_recovers_before_its_isr_grows() -> None:
    world = World(state=RECOVERING)
    world.look()
    [asked] = world.asked()
    assert (isr_of(asked), asked.leader_recovery_state) == ([(ME, 101)], RECOVERED)
    world.answer(accepted([ME]))
    assert not world.log.recovering
    [asked] = world.asked()
    assert (isr_of(asked), asked.partition_epoch) == ([(ME, 101), (TWO, 102), (THREE, 103)], 1)


def test_answer_is_dropped_when_newer_metadata_came_first() -> None:
    world = World()
    world.look()
    world.asked()
    world.commit(change(isr=[ME, THREE]))
    world.answer(accepted([ME, TWO, THREE]))
    assert (world.log.isr, world.log.partition_epoch) == ([ME, THREE], 1)
    assert world.isrs.counts.expands == 0
    assert isr_of(world.asked()[0]) == [(ME, 101), (TWO, 102), (THREE, 103)]


def test_change_is_counted_once_when_the_metadata_shows_it_before_the_answer() -> None:
    world = World(isr=[ME, TWO, THREE])
    world.log.seen[THREE] = Follower(THREE, 103, may_join=False, must_leave=True)
    world.look()
    world.asked()
    world.commit(change(isr=[ME, TWO]))
    assert (world.isrs.counts.expands, world.isrs.counts.shrinks) == (0, 1)
    world.answer(accepted([ME, TWO]))
    assert (world.isrs.counts.expands, world.isrs.counts.shrinks, world.isrs.counts.failed) == (0, 1, 0)


def test_change_that_the_controller_made_is_not_counted() -> None:
    world = World(isr=[ME, TWO, THREE])
    world.log.seen[THREE] = Follower(THREE, 103, may_join=False, must_leave=True)
    world.look()
    world.commit(change(isr=[ME, TWO]))  # before the request is sent
    assert (world.isrs.counts.expands, world.isrs.counts.shrinks) == (0, 0)


def test_next_proposal_starts_from_the_answer_when_the_metadata_is_late() -> None:
    world = World()
    world.log.seen[THREE] = Follower(THREE, 103, may_join=False)
    world.look()
    world.asked()
    world.answer(accepted([ME, TWO]))
    world.log.seen[TWO] = Follower(TWO, 102, may_join=False, must_leave=True)
    world.look()
    [asked] = world.asked()
    assert (isr_of(asked), asked.partition_epoch) == ([(ME, 101)], 1)
    # The metadata contains the first change, which the leader already knows. The second change is still in flight.
    world.commit(change(isr=[ME, TWO]))
    world.answer(accepted([ME], 2))
    assert (world.log.isr, world.log.partition_epoch) == ([ME], 2)


def test_answer_of_another_leader_epoch_waits_for_the_metadata() -> None:
    world = World()
    world.look()
    world.asked()
    world.answer(accepted([ME, TWO, THREE], leader_epoch=1))
    assert (world.log.isr, world.log.partition_epoch) == ([ME], 0)
    assert world.isrs.counts.failed == 1
    world.look()
    assert world.isrs.request() is None


def test_proposal_ends_when_the_leader_moves() -> None:
    world = World()
    world.look()
    world.asked()
    world.commit(change(leader=TWO))
    world.isrs.lost()
    assert world.isrs.request() is None
