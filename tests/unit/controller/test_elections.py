"""ElectLeaders and unclean elections: which replica becomes the leader when no in-sync replica is available (KIP-460,
KIP-106, KIP-966)."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacore.metadata.snapshot import image_of, records_of
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kafkacore.protocol.messages import (
    AssignReplicasToDirsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    UpdateFeaturesRequest,
)
from kafkacore.protocol.uuid import Uuid
from partition_leaders import Caller, alter, asked, create

PREFERRED, UNCLEAN = 0, 1
RECOVERING = 1


async def elect(harness: Any, kind: int, *partitions: int, name: str = "t") -> list[str]:
    made = ElectLeadersRequest
    topics = [made.TopicPartitions(topic=name, partitions=list(partitions))] if partitions else None
    request = made(election_type=kind, topic_partitions=topics, timeout_ms=1000)
    response = await harness.controller.elect_leaders(Caller(2), request)
    return [
        ErrorCode(each.error_code).name
        for topic in response.replica_election_results
        for each in topic.partition_result
    ]


async def lost(harness: Any, **configs: str) -> None:
    """Makes a partition whose last in-sync replica was on broker 1, which is now dead. Broker 2 is alive, but its
    replica lacks records."""
    await harness.brokers(1, 2)
    await create(harness, "t", [1, 2], **configs)
    await alter(harness, asked(harness, [1]))
    await harness.heartbeat(1, want_fence=True)


def test_preferred_replica_leads_again_when_it_is_in_sync(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "t", [1, 2], [2, 1], [2, 1])
        await harness.heartbeat(1, want_fence=True)
        await harness.heartbeat(1)
        assert await elect(harness, PREFERRED, 0) == ["PREFERRED_LEADER_NOT_AVAILABLE"]
        await alter(harness, asked(harness, [2, 1]), leader=2)
        told = await elect(harness, PREFERRED, 0, 1, 2, 9)
        assert told == ["NONE", "ELECTION_NOT_NEEDED", "ELECTION_NOT_NEEDED", "UNKNOWN_TOPIC_OR_PARTITION"]
        row = harness.partition("t", 0)
        assert (row.leader, row.isr, row.recovery_state) == (1, (2, 1), 0)
        assert await elect(harness, PREFERRED, 0, name="absent") == ["UNKNOWN_TOPIC_OR_PARTITION"]

    run(story)


def test_election_for_all_partitions_reports_those_that_lack_their_leader(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "t", [1, 2], [2, 1], [2, 1])
        await harness.heartbeat(2, want_fence=True)
        await harness.heartbeat(2)
        await alter(harness, asked(harness, [1, 2], partition=1))
        assert sorted(await elect(harness, PREFERRED)) == ["NONE", "PREFERRED_LEADER_NOT_AVAILABLE"]
        assert [harness.partition("t", index).leader for index in range(3)] == [1, 2, 1]

    run(story)


def test_unknown_election_type_is_refused(run) -> None:
    async def story(harness):
        await lost(harness)
        with pytest.raises(KafkaError) as refused:
            await elect(harness, 7, 0)
        assert refused.value.code == ErrorCode.INVALID_REQUEST

    run(story)


@pytest.mark.parametrize("level", [21, 30])
def test_unclean_election_by_request_takes_a_live_replica_only_when_nobody_leads(run, level) -> None:
    async def story(harness):
        await lost(harness)
        assert harness.partition("t", 0).leader == -1
        assert await elect(harness, PREFERRED, 0) == ["PREFERRED_LEADER_NOT_AVAILABLE"]
        assert await elect(harness, UNCLEAN, 0) == ["NONE"]
        row = harness.partition("t", 0)
        assert (row.leader, row.isr, row.elr, row.recovery_state) == (2, (2,), (), RECOVERING)
        assert await elect(harness, UNCLEAN, 0) == ["ELECTION_NOT_NEEDED"]
        await harness.heartbeat(2, want_fence=True)
        row = harness.partition("t", 0)
        assert (row.leader, row.recovery_state) == (-1, RECOVERING)

    run(story, level=level)


def test_unclean_election_finds_nobody_when_no_replica_lives(run) -> None:
    async def story(harness):
        await lost(harness)
        await harness.heartbeat(2, want_fence=True)
        assert await elect(harness, UNCLEAN, 0) == ["ELIGIBLE_LEADERS_NOT_AVAILABLE"]

    run(story)


@pytest.mark.parametrize("where", ["topic", "cluster", "neither"])
def test_unclean_election_follows_the_topic_and_the_cluster(run, where) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        if where == "cluster":
            made = IncrementalAlterConfigsRequest
            config = made.AlterableConfig(name="unclean.leader.election.enable", config_operation=0, value="true")
            resource = made.AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
            await harness.controller.incremental_alter_configs(Caller(1), made(resources=[resource]))
        configs = {"unclean_leader_election_enable": "true"} if where == "topic" else {}
        await create(harness, "t", [1, 2], **configs)
        await alter(harness, asked(harness, [1]))
        await harness.heartbeat(1, want_fence=True)
        assert harness.partition("t", 0).leader == (-1 if where == "neither" else 2)

    run(story)


def test_last_known_leader_leads_as_recovering_when_isr_and_elr_are_empty(run) -> None:
    async def story(harness):
        await lost(harness)
        row = harness.partition("t", 0)
        assert (row.isr, row.elr, row.last_known_elr) == ((), (1,), (1,))
        await harness.register(1, incarnation=2)  # broker 1 has crashed, so it may have lost records
        row = harness.partition("t", 0)
        assert (row.isr, row.elr, row.last_known_elr, row.leader) == ((), (), (1,), -1)
        await harness.heartbeat(1)
        row = harness.partition("t", 0)
        assert (row.leader, row.isr, row.recovery_state, row.last_known_elr) == (1, (1,), RECOVERING, ())

    run(story)


@pytest.mark.parametrize("resource", [(2, "t"), (4, "")], ids=["of-the-topic", "of-the-cluster"])
@pytest.mark.parametrize("crashed", [False, True])
def test_partition_without_a_leader_stays_electable_when_min_isr_changes(
    run, resource: tuple[int, str], *, crashed: bool
) -> None:
    async def story(harness):
        await lost(harness)
        if crashed:
            await harness.register(1, incarnation=2)
        before = harness.partition("t", 0)
        assert before.isr == () and before.last_known_elr == (1,)
        made = IncrementalAlterConfigsRequest
        config = made.AlterableConfig(name="min.insync.replicas", config_operation=0, value="2")
        asked_for = made.AlterConfigsResource(resource_type=resource[0], resource_name=resource[1], configs=[config])
        response = await harness.controller.incremental_alter_configs(Caller(1), made(resources=[asked_for]))
        assert response.responses[0].error_code == 0
        row = harness.partition("t", 0)
        assert (row.elr, row.last_known_elr) == (before.elr, (1,))
        await harness.heartbeat(1)
        assert harness.partition("t", 0).leader == 1

    run(story)


@pytest.mark.parametrize(("value", "elr"), [("2", (2,)), ("1", ())])
def test_eligible_replicas_are_cleared_only_when_the_value_of_min_isr_changes(
    run, value: str, elr: tuple[int, ...]
) -> None:
    async def story(harness):
        made = IncrementalAlterConfigsRequest

        async def configure(value):
            config = made.AlterableConfig(name="min.insync.replicas", config_operation=0, value=value)
            everywhere = made.AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
            response = await harness.controller.incremental_alter_configs(Caller(1), made(resources=[everywhere]))
            assert response.responses[0].error_code == 0

        await harness.brokers(1, 2)
        await configure("2")
        await create(harness, "t", [1, 2])
        await alter(harness, asked(harness, [1]))
        assert harness.partition("t", 0).elr == (2,)
        await configure(value)
        assert harness.partition("t", 0).elr == elr

    run(story)


def test_broker_that_ended_clean_stays_eligible_and_one_that_crashed_does_not(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3)
        await create(harness, "t", [1, 2, 3], min_insync_replicas="3")
        for broker_id in (2, 3):
            await harness.heartbeat(broker_id, want_fence=True)
        assert harness.partition("t", 0).elr == (2, 3)
        await harness.register(2, incarnation=2, previous_broker_epoch=harness.epochs[2])
        await harness.register(3, incarnation=2, previous_broker_epoch=harness.epochs[3] - 1)
        assert harness.partition("t", 0).elr == (2,)

    run(story)


def test_broker_without_the_epoch_of_its_former_life_counts_as_crashed(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "t", [1, 2], min_insync_replicas="2")
        await harness.heartbeat(2, want_fence=True)
        assert harness.partition("t", 0).elr == (2,)
        await harness.register(2, incarnation=2, version=2, previous_broker_epoch=harness.epochs[2])
        assert harness.partition("t", 0).elr == ()  # version 2 has no previous_broker_epoch, so the restart is unclean

    run(story)


def test_broker_that_returns_with_an_empty_disk_does_not_lead_from_its_lost_directory(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "t", [1, 2])
        await create(harness, "alone", [1])
        old = harness.partition("alone", 0).directory(1)
        await harness.heartbeat(1, want_fence=True)
        new = Uuid(b"new directory id")
        await harness.register(1, incarnation=2, log_dirs=[new], previous_broker_epoch=harness.epochs[1])
        assert not (await harness.heartbeat(1)).is_fenced
        row = harness.partition("alone", 0)
        assert (row.leader, row.directory(1)) == (-1, old)
        made = AssignReplicasToDirsRequest
        topic = made.TopicData(
            topic_id=harness.controller.image.topic("t").topic_id, partitions=[made.PartitionData(partition_index=0)]
        )
        request = made(
            broker_id=1, broker_epoch=harness.epochs[1], directories=[made.DirectoryData(id=new, topics=[topic])]
        )
        await harness.controller.assign_replicas_to_dirs(Caller(0), request)
        row = harness.partition("t", 0)
        assert (row.directory(1), row.leader) == (new, 2)

    run(story)


def test_topic_is_deleted_while_the_brokers_of_its_replicas_are_down(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "t", [1, 2], [2, 1])
        topic_id = harness.controller.image.topic("t").topic_id
        await harness.heartbeat(2, want_fence=True)
        made = DeleteTopicsRequest
        request = made(topics=[made.DeleteTopicState(name="t")], timeout_ms=1000)
        response = await harness.controller.delete_topics(Caller(6), request)
        assert response.responses[0].error_code == 0
        # The deleted topic has no partition left that the brokers could lead when they come back.
        await harness.register(2, incarnation=2)
        await harness.heartbeat(2)
        image = harness.controller.image
        assert image.topic("t") is None and image.topic_by_id(topic_id) is None and image.partition_count == 0

    run(story)


async def two_directories(harness: Any) -> tuple[Uuid, Uuid]:
    """Broker 1 has two directories; its replicas of the topic t are in the first one. Broker 2 is fenced."""
    one, other = Uuid(b"first  directory"), Uuid(b"second directory")
    await harness.brokers(1, log_dirs=[one, other])
    await harness.brokers(2)
    await create(harness, "t", [1, 2], min_insync_replicas="2")
    await assign(harness, one)
    await harness.heartbeat(2, want_fence=True)
    return one, other


async def assign(harness: Any, directory: Uuid) -> None:
    made = AssignReplicasToDirsRequest
    topic_id = harness.controller.image.topic("t").topic_id
    topic = made.TopicData(topic_id=topic_id, partitions=[made.PartitionData(partition_index=0)])
    request = made(
        broker_id=1, broker_epoch=harness.epochs[1], directories=[made.DirectoryData(id=directory, topics=[topic])]
    )
    await harness.controller.assign_replicas_to_dirs(Caller(0), request)


def test_broker_does_not_lead_from_a_directory_that_fails_when_the_broker_is_unfenced(run) -> None:
    async def story(harness):
        one, other = await two_directories(harness)
        await harness.heartbeat(1, want_fence=True)
        assert not (await harness.heartbeat(1, offline_log_dirs=[one])).is_fenced
        assert harness.controller.image.brokers[1].directories == (other,)
        assert harness.partition("t", 0).leader == -1
        await harness.heartbeat(2)
        assert (harness.partition("t", 0).leader, harness.partition("t", 0).isr) == (2, (2,))

    run(story)


def test_replica_in_a_new_directory_is_not_eligible_when_its_broker_ended_clean_but_lost_the_old_one(run) -> None:
    async def story(harness):
        _, other = await two_directories(harness)
        await harness.heartbeat(1, want_fence=True)
        assert harness.partition("t", 0).elr == (1, 2)
        await harness.register(1, incarnation=2, log_dirs=[other], previous_broker_epoch=harness.epochs[1])
        await harness.heartbeat(1)
        await assign(harness, other)
        row = harness.partition("t", 0)
        assert (row.elr, row.leader, row.directory(1)) == ((2,), -1, other)
        assert await elect(harness, PREFERRED, 0) == ["PREFERRED_LEADER_NOT_AVAILABLE"]
        await harness.heartbeat(2)
        assert harness.partition("t", 0).leader == 2

    run(story)


def test_last_leader_is_forgotten_when_it_comes_back_with_a_new_directory(run) -> None:
    async def story(harness):
        _, other = await two_directories(harness)
        await harness.register(2, incarnation=2)  # broker 2 ended unclean, so it leaves the ELR
        await harness.heartbeat(1, want_fence=True)
        await harness.register(1, incarnation=2, log_dirs=[other], previous_broker_epoch=harness.epochs[1])
        await harness.heartbeat(1)
        await assign(harness, other)
        row = harness.partition("t", 0)
        assert (row.isr, row.elr, row.last_known_elr) == ((), (), ())
        await harness.heartbeat(2)
        assert harness.partition("t", 0).leader == -1, "an election would truncate broker 2 to an empty log"

    run(story)


def test_replica_that_moves_between_directories_stays_eligible(run) -> None:
    async def story(harness):
        await two_directories(harness)
        await harness.heartbeat(2)
        await harness.heartbeat(1, want_fence=True)
        assert harness.partition("t", 0).elr == (1,)
        await assign(harness, Uuid(b"second directory"))
        assert harness.partition("t", 0).elr == (1,)

    run(story)


@pytest.mark.parametrize(("crashed", "recovery"), [(False, 0), (True, RECOVERING)])
def test_partition_without_a_leader_stays_electable_when_elr_is_turned_off(run, crashed: bool, recovery: int) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "t", [2, 1], min_insync_replicas="2")
        await harness.heartbeat(2, want_fence=True)
        await harness.heartbeat(1, want_fence=True)
        if crashed:
            await harness.register(1, incarnation=2)
            await harness.register(2, incarnation=2)
        row = harness.partition("t", 0)
        assert (row.isr, row.elr, row.last_known_elr) == ((), () if crashed else (1, 2), (1,))
        made = UpdateFeaturesRequest
        off = made.FeatureUpdateKey(feature=ELIGIBLE_LEADER_REPLICAS_VERSION, max_version_level=0, upgrade_type=2)
        response = await harness.controller.update_features(Caller(1), made(timeout_ms=1000, feature_updates=[off]))
        assert response.error_code == 0
        row = harness.partition("t", 0)
        assert (row.isr, row.elr, row.last_known_elr, row.recovery_state) == ((1,), (), (), recovery)
        image = harness.controller.image
        assert list(records_of(image_of(records_of(image), image.offset, 1, 0))) == list(records_of(image))
        await harness.heartbeat(1)
        row = harness.partition("t", 0)
        assert (row.leader, row.isr, row.recovery_state) == (1, (1,), recovery)

    run(story)


def test_last_leader_of_before_elr_leads_as_recovering_when_it_crashed(run) -> None:
    async def story(harness):
        await lost(harness)
        assert (harness.partition("t", 0).isr, harness.partition("t", 0).leader) == ((1,), -1)
        made = UpdateFeaturesRequest
        on = made.FeatureUpdateKey(feature=ELIGIBLE_LEADER_REPLICAS_VERSION, max_version_level=1, upgrade_type=1)
        response = await harness.controller.update_features(Caller(1), made(timeout_ms=1000, feature_updates=[on]))
        assert response.error_code == 0
        await harness.register(1, incarnation=2)
        await harness.heartbeat(1)
        row = harness.partition("t", 0)
        assert (row.leader, row.isr, row.recovery_state, row.last_known_elr) == (1, (1,), RECOVERING, ())

    run(story, level=25)
