"""Requests to the active controller of ZooKeeper mode about ISRs, producer ids and features, and notifications by
leaders of old versions."""

import asyncio

import pytest
from tests.support.zookeeper_controllers import error_of, refuse_once, run_cluster

from kafkacore.controller.zookeeper.features import SAFE_DOWNGRADE, UPGRADE
from kafkacore.controller.zookeeper.inter_broker_protocol import InterBrokerProtocol
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    UpdateFeaturesRequest,
)
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import Create, CreateMode, SetData

EVENTS = ("events", 0)


def started(world, **settings):
    world.start_brokers(1, 2, 3, **settings)
    world.create_topic("events", {0: [1, 2, 3], 1: [1, 2, 3]})
    world.settle()
    for life in world.alive():
        life.model.proposes = False


def request_of(world, isr, *, broker_id=1, version=3, number=0, **changes):
    """Returns a leader's AlterPartition request for one partition. `changes` replaces fields of the partition's
    entry."""
    life = world.lives[broker_id]
    hosted = life.model.hosted["events", number]
    partition = AlterPartitionRequest.PartitionData(
        partition_index=number, leader_epoch=hosted.leader_epoch, partition_epoch=hosted.partition_epoch
    )
    if version >= 3:
        partition.new_isr_with_epochs = [
            AlterPartitionRequest.BrokerState(
                broker_id=each, broker_epoch=world.lives[each].epoch if each in world.lives else 5
            )
            for each in isr
        ]
    else:
        partition.new_isr = list(isr)
    for name, value in changes.items():
        setattr(partition, name, value)
    topic = AlterPartitionRequest.TopicData(topic_id=hosted.topic_id, topic_name="events", partitions=[partition])
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=life.epoch, topics=[topic])


def answer(world, request, version=3):
    response = world.ask("alter_partition", request, version)
    if response.error_code:
        return ErrorCode(response.error_code)
    (topic,) = response.topics
    return ErrorCode(topic.partitions[0].error_code)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_leader_shrinks_and_expands_its_isr(version):
    def story(world):
        started(world)
        assert answer(world, request_of(world, [1, 2], version=version), version) == ErrorCode.NONE
        assert world.state(*EVENTS)["isr"] == [1, 2]
        world.lives[1].model.hosted[EVENTS].partition_epoch += 1
        assert answer(world, request_of(world, [1, 2, 3], version=version), version) == ErrorCode.NONE
        assert world.state(*EVENTS)["leader_epoch"] == 0

    run_cluster(story)


@pytest.mark.parametrize(
    ("isr", "changes", "error"),
    [
        ([1, 2], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"leader_epoch": 7}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": 7}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ([1, 2, 3], {"partition_epoch": -1}, ErrorCode.NONE),  # the partition already has this state
        ([1, 9], {}, ErrorCode.INELIGIBLE_REPLICA),
        ([2, 3], {}, ErrorCode.INVALID_REQUEST),  # the ISR lacks the leader
        ([1, 1], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 9}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"partition_index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_isr_is_refused_with_the_error_of_kafka(isr, changes, error):
    def story(world):
        started(world)
        before = world.state(*EVENTS)
        assert answer(world, request_of(world, isr, **changes)) == error
        assert world.state(*EVENTS) == before

    run_cluster(story)


def test_isr_of_another_broker_is_refused():
    def story(world):
        started(world)
        assert answer(world, request_of(world, [2, 1], broker_id=2)) == ErrorCode.INVALID_REQUEST

    run_cluster(story)


def test_requests_of_a_former_life_of_a_broker_are_refused():
    def story(world):
        started(world)
        request = request_of(world, [1, 2])
        request.broker_epoch -= 1
        assert answer(world, request) == ErrorCode.STALE_BROKER_EPOCH
        request.broker_id = 77
        assert answer(world, request) == ErrorCode.STALE_BROKER_EPOCH

    run_cluster(story)


def test_replica_that_has_bounced_unnoticed_does_not_join_the_isr():
    def story(world):
        started(world)
        assert answer(world, request_of(world, [1, 2])) == ErrorCode.NONE
        world.lives[1].model.hosted[EVENTS].partition_epoch += 1
        request = request_of(world, [1, 2, 3])
        request.topics[0].partitions[0].new_isr_with_epochs[2].broker_epoch -= 1
        assert answer(world, request) == ErrorCode.INELIGIBLE_REPLICA

    run_cluster(story)


def test_unknown_topic_id_is_refused():
    def story(world):
        started(world)
        request = request_of(world, [1, 2])
        request.topics[0].topic_id = world.uuids()
        assert answer(world, request) == ErrorCode.UNKNOWN_TOPIC_ID

    run_cluster(story)


def test_waiting_isr_changes_of_many_brokers_are_one_write():
    def story(world):
        started(world)
        active = world.active()
        writes = world.zookeeper.writes
        world.requests.clear()
        requests = [request_of(world, [1, 2], number=0), request_of(world, [1, 3], number=1)]

        async def together():
            asked = [active.controller.alter_partition(each, 3) for each in requests]
            return await asyncio.gather(*asked)

        responses = world.on(active, together())
        assert [each.topics[0].partitions[0].error_code for each in responses] == [0, 0]
        world.settle()
        assert world.zookeeper.writes - writes == 1
        assert len(world.sent(ApiKey.UPDATE_METADATA)) == 3

    run_cluster(story)


def test_second_proposal_of_the_same_partition_is_refused():
    def story(world):
        started(world)
        active = world.active()

        async def together():
            asked = [active.controller.alter_partition(request_of(world, isr), 3) for isr in ([1, 2], [1, 3])]
            return await asyncio.gather(*asked)

        codes = [each.topics[0].partitions[0].error_code for each in world.on(active, together())]
        assert codes == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
        assert world.state(*EVENTS)["isr"] == [1, 2]

    run_cluster(story)


def test_repeated_proposal_of_the_same_partition_is_accepted_when_the_first_one_still_waits():
    def story(world):
        started(world)
        active = world.active()
        version = world.node(paths.partition_state(*EVENTS)).version

        async def together():
            asked = [active.controller.alter_partition(request_of(world, [1, 2]), 3) for _ in range(2)]
            return await asyncio.gather(*asked)

        results = [each.topics[0].partitions[0] for each in world.on(active, together())]
        assert [each.error_code for each in results] == [ErrorCode.NONE, ErrorCode.NONE]
        assert [(each.isr, each.partition_epoch) for each in results] == [([1, 2], version + 1)] * 2
        assert world.node(paths.partition_state(*EVENTS)).version == version + 1

    run_cluster(story)


def test_isr_goes_to_the_controller_only():
    def story(world):
        started(world)
        other = next(life for life in world.alive() if not life.controller.is_active)
        response = world.on(other, other.controller.alter_partition(request_of(world, [1, 2]), 3))
        assert response.error_code == ErrorCode.NOT_CONTROLLER

    run_cluster(story)


def test_request_is_answered_when_the_controller_stops_while_it_handles_the_request():
    def story(world):
        started(world)
        life = world.active()
        asked = life.loop.create_task(life.controller.alter_partition(request_of(world, [1, 2]), 3))
        world.wait_for(lambda: life.controller.state == "IsrChange")
        world.on(life, life.controller.stop())
        world.wait_for(asked.done)
        assert asked.result().error_code == ErrorCode.NOT_CONTROLLER
        world.kill(life.broker_id)

    run_cluster(story)


# --- leaders with versions below 2.7-IV2 write ISRs themselves ---


def write_isr(world, isr):
    path = paths.partition_state(*EVENTS)
    state = world.state(*EVENTS)
    data = znodes.encode_states(
        [znodes.PartitionState(state["leader"], state["leader_epoch"], isr, state["controller_epoch"])]
    )
    world.do(SetData(path, data[0]))


def test_isr_that_an_old_leader_wrote_reaches_all_brokers():
    def story(world):
        started(world, inter_broker_protocol=InterBrokerProtocol("2.6"))
        write_isr(world, [1, 2])
        note = znodes.encode_isr_change([EVENTS, ("unknown", 3)])
        world.do(Create(paths.isr_change(), note, CreateMode.PERSISTENT_SEQUENTIAL))
        world.settle()
        assert world.lives[3].model.metadata[EVENTS][2] == [1, 2]
        assert not world.node(paths.ISR_CHANGES).children

    run_cluster(story)


def test_isr_of_an_old_leader_reaches_all_brokers_when_zookeeper_refuses_to_read_its_notification_at_first():
    def story(world):
        started(world, inter_broker_protocol=InterBrokerProtocol("2.6"))
        refused = refuse_once(world.active(), f"{paths.isr_change()}{0:010}")
        write_isr(world, [1, 2])
        world.do(Create(paths.isr_change(), znodes.encode_isr_change([EVENTS]), CreateMode.PERSISTENT_SEQUENTIAL))
        world.wait_for(lambda: world.lives[3].model.metadata[EVENTS][2] == [1, 2])
        assert refused

    run_cluster(story)


@pytest.mark.parametrize("content", [b"", b"{", b'{"partitions":1}'])
def test_notification_that_cannot_be_read_is_dropped(content):
    def story(world):
        started(world)
        world.do(Create(paths.isr_change(), content, CreateMode.PERSISTENT_SEQUENTIAL))
        world.do(Create(paths.log_dir_event(), content, CreateMode.PERSISTENT_SEQUENTIAL))
        world.settle()
        assert not world.node(paths.ISR_CHANGES).children
        assert not world.node(paths.LOG_DIR_EVENTS).children

    run_cluster(story)


def test_reassignment_ends_when_an_old_leader_writes_the_isr():
    def story(world):
        world.start_brokers(1, 2, 3, inter_broker_protocol=InterBrokerProtocol("2.6"))
        world.create_topic("events", {0: [1, 2]})
        world.settle()
        for life in world.alive():
            life.model.proposes = False
        world.reassign({EVENTS: [1, 3]})
        world.settle()
        assert world.assignment(*EVENTS) == [1, 3, 2]
        write_isr(world, [1, 2, 3])
        world.settle()
        assert world.assignment(*EVENTS) == [1, 3]
        assert world.node(paths.REASSIGN_PARTITIONS) is None

    run_cluster(story)


def test_old_replicas_stay_when_an_old_leader_has_just_removed_the_target_replicas_from_the_isr():
    """During an upgrade, leaders of old versions write ISRs, and the controller learns of them later."""

    def story(world):
        world.start_brokers(1, 2, 3, auto_leader_rebalance_enable=False)
        world.create_topic("events", {0: [1, 2]})
        world.settle()
        for life in world.alive():
            life.model.proposes = False
        write_isr(world, [1])
        world.reassign({EVENTS: [2]})
        world.settle()
        assert not world.lives[1].model.stopped
        assert (world.state(*EVENTS)["leader"], world.state(*EVENTS)["isr"]) == (1, [1])
        assert world.assignment(*EVENTS) == [2, 1]
        for life in world.alive():
            life.model.proposes = True
            life.model.propose_soon()
        world.settle()
        assert world.assignment(*EVENTS) == [2]
        assert world.state(*EVENTS)["isr"] == [2]

    run_cluster(story)


def test_election_meets_an_isr_that_an_old_leader_has_just_written():
    def story(world):
        world.start_brokers(1, 2, 3, inter_broker_protocol=InterBrokerProtocol("2.6"))
        victim = next(life.broker_id for life in world.alive() if not life.controller.is_active)
        others = [each for each in (1, 2, 3) if each != victim]
        world.create_topic("events", {0: [victim, *others]})
        world.settle()
        for life in world.alive():
            life.model.proposes = False
        write_isr(world, [victim, others[1]])  # the controller has not been notified of this ISR yet
        world.kill(victim)
        world.settle()
        assert world.state(*EVENTS)["leader"] == others[1]

    run_cluster(story)


# --- producer ids ---


def allocate(world, broker_id=1, epoch=None):
    life = world.lives[broker_id]
    request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=life.epoch if epoch is None else epoch)
    return world.ask("allocate_producer_ids", request)


def test_blocks_of_producer_ids_follow_each_other_over_failovers():
    def story(world):
        started(world)
        firsts = [allocate(world).producer_id_start, allocate(world, 2).producer_id_start]
        world.move_controller()
        world.wait_for(lambda: world.controller_epoch() == 2 and world.active() is not None)
        world.settle()
        firsts.append(allocate(world, 3).producer_id_start)
        assert firsts == [0, 1000, 2000]
        block = znodes.decode_producer_id_block(world.node(paths.PRODUCER_ID_BLOCK).data)
        assert block == (3, 2000, 2999)

    run_cluster(story)


def test_producer_ids_are_refused_to_a_former_life_and_to_a_stranger():
    def story(world):
        started(world)
        assert allocate(world, epoch=0).error_code == ErrorCode.STALE_BROKER_EPOCH
        request = AllocateProducerIdsRequest(broker_id=9, broker_epoch=0)
        assert world.ask("allocate_producer_ids", request).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    run_cluster(story)


@pytest.mark.parametrize(
    "content", [b"{", b'{"version":1,"broker":1,"block_start":"9223372036854775000","block_end":"9223372036854775807"}']
)
def test_block_that_cannot_be_continued_is_refused_and_stays(content):
    def story(world):
        started(world)
        world.put_znode(paths.PRODUCER_ID_BLOCK, content)
        life = world.lives[1]
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=life.epoch)
        assert error_of(world, "allocate_producer_ids", request) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert world.node(paths.PRODUCER_ID_BLOCK).data == content

    run_cluster(story)


# --- features ---


def update(world, *updates, version=1):
    request = UpdateFeaturesRequest(
        feature_updates=[
            UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, **flag(kind, version))
            for name, level, kind in updates
        ]
    )
    response = world.ask("update_features", request, version)
    return {each.feature: (ErrorCode(each.error_code), each.error_message or "") for each in response.results}


def flag(kind, version):
    """Returns the field of an update that contains its type. Version 0 only says whether a downgrade is allowed."""
    return {"upgrade_type": kind} if version else {"allow_downgrade": kind == SAFE_DOWNGRADE}


def levels(world):
    """Returns the finalized levels in ZooKeeper."""
    return znodes.decode_features(world.node(paths.FEATURE).data).levels


def with_features(world, **settings):
    """Starts brokers that support two features."""
    world.broker_features = {"group.version": (0, 3), "transaction.version": (0, 2)}
    started(world, supported_features=world.broker_features, **settings)


@pytest.mark.parametrize("version", [0, 1])
def test_feature_levels_are_written_when_every_broker_supports_them(version):
    def story(world):
        with_features(world)
        for asked, found in (
            (("group.version", 2, UPGRADE), {"group.version": 2}),
            (("transaction.version", 1, UPGRADE), {"group.version": 2, "transaction.version": 1}),
            (("group.version", 3, UPGRADE), {"group.version": 3, "transaction.version": 1}),
            (("group.version", 1, SAFE_DOWNGRADE), {"group.version": 1, "transaction.version": 1}),
            (("group.version", 0, SAFE_DOWNGRADE), {"transaction.version": 1}),
        ):
            written = world.node(paths.FEATURE).version
            assert update(world, asked, version=version) == {asked[0]: (ErrorCode.NONE, "")}
            assert levels(world) == found
            assert world.node(paths.FEATURE).version == written + 1
        former = world.active()
        world.move_controller()
        world.wait_for(lambda: world.active() not in (None, former))
        world.settle()
        assert world.active().controller.context.finalized_features == {"transaction.version": 1}

    run_cluster(story)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("group.version", 2, UPGRADE), "to the same value"),
        (("group.version", 1, UPGRADE), "without setting the downgradeType to SAFE"),
        (("group.version", 3, SAFE_DOWNGRADE), "can not be greater than existing"),
        (("group.version", 0, UPGRADE), "less than 1"),
    ],
)
def test_finalized_feature_stays_when_the_type_of_the_update_does_not_fit_its_level(asked, message, version):
    def story(world):
        with_features(world)
        update(world, ("group.version", 2, UPGRADE))
        written = world.node(paths.FEATURE).version
        error, text = update(world, asked, version=version)["group.version"]
        assert error == ErrorCode.INVALID_REQUEST
        assert message in text
        assert levels(world) == {"group.version": 2}
        assert world.node(paths.FEATURE).version == written

    run_cluster(story)


def test_valid_updates_are_written_when_the_request_has_others_that_are_refused():
    def story(world):
        with_features(world)
        found = update(world, ("group.version", 9, UPGRADE), ("transaction.version", 2, UPGRADE))
        assert found["group.version"][0] == ErrorCode.INVALID_REQUEST
        assert found["transaction.version"] == (ErrorCode.NONE, "")
        assert levels(world) == {"transaction.version": 2}

    run_cluster(story)


def test_feature_is_deleted_when_the_request_names_it_twice():
    def story(world):
        with_features(world)
        update(world, ("group.version", 1, UPGRADE))
        deletion = ("group.version", 0, SAFE_DOWNGRADE)
        assert update(world, deletion, deletion) == {"group.version": (ErrorCode.NONE, "")}
        assert levels(world) == {}

    run_cluster(story)


def test_feature_updates_are_refused_when_the_inter_broker_protocol_has_no_features():
    def story(world):
        with_features(world, inter_broker_protocol=InterBrokerProtocol("2.6"))
        request = UpdateFeaturesRequest(
            feature_updates=[UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=1)]
        )
        assert error_of(world, "update_features", request, 1) == ErrorCode.INVALID_REQUEST
        assert levels(world) == {}

    run_cluster(story)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("", 1, 1), "can not be empty"),
        (("group.version", 1, 0), "unknown upgrade type"),
        (("group.version", 0, 2), "non-existing"),
        (("group.version", 0, 1), "less than 1"),
        (("nothing", 1, 1), "not supported"),
        (("group.version", 9, 1), "supported"),
        (("group.version", 1, 1), "brokers were found"),
    ],
)
def test_feature_update_is_refused_with_its_reason(asked, message):
    def story(world):
        started(world, supported_features={"group.version": (0, 1)})
        answers = update(world, asked)
        assert answers[asked[0]][0] == ErrorCode.INVALID_REQUEST
        assert message in answers[asked[0]][1]
        assert znodes.decode_features(world.node(paths.FEATURE).data).levels == {}

    run_cluster(story)
