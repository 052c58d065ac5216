"""Brokers and their registration, fencing, controlled shutdown, log directories and eligible leader replicas."""

from __future__ import annotations

import pytest

from kafkacore.controller.quorum import cluster, controller
from kafkacore.controller.quorum.decisions import MIN_IN_SYNC_REPLICAS as KEY
from kafkacore.controller.quorum.decisions import UNCLEAN_ELECTION, min_isr, topic_setting, unclean_elections
from kafkacore.metadata.edit import Edit
from kafkacore.metadata.partition_records import record_count
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import (
    AllocateProducerIdsRequest,
    AssignReplicasToDirsRequest,
    ConfigRecord,
    ControllerRegistrationRequest,
    CreateTopicsRequest,
    UnregisterBrokerRequest,
)
from kafkacore.protocol.uuid import Uuid

SESSION_MS = 9000


class Caller:
    api_version = 7


async def create(harness, name, replicas, **configs):
    made = CreateTopicsRequest
    topic = made.CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            made.CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in enumerate(replicas)
        ],
        configs=[made.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    response = await harness.controller.create_topics(Caller(), made(topics=[topic], timeout_ms=1000))
    assert response.topics[0].error_code == 0, response.topics[0].error_message


async def refusal(awaitable):
    with pytest.raises(KafkaError) as refused:
        await awaitable
    return ErrorCode(refused.value.code).name


def test_broker_is_fenced_until_it_has_read_its_own_registration(run) -> None:
    async def story(harness):
        await harness.register(1)
        broker = harness.controller.image.brokers[1]
        assert broker.fenced and broker.epoch == broker.record_offset
        behind = await harness.heartbeat(1, current_metadata_offset=broker.epoch - 1)
        assert (behind.is_fenced, behind.is_caught_up) == (True, False)
        waits = await harness.heartbeat(1, want_fence=True)
        assert (waits.is_fenced, waits.is_caught_up) == (True, True)
        assert not (await harness.heartbeat(1)).is_fenced
        assert harness.controller.image.is_active(1)

    run(story)


def test_heartbeat_that_changes_nothing_appends_nothing(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        before = harness.log.end_offset
        for _ in range(5):
            assert not (await harness.heartbeat(1)).is_fenced
        assert harness.log.end_offset == before

    run(story)


def test_invalid_registration_is_refused(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        refuse = {
            "INCONSISTENT_CLUSTER_ID": {"broker_id": 2, "cluster_id": "other"},
            "DUPLICATE_BROKER_REGISTRATION": {"broker_id": 1, "incarnation": 2},
            "INVALID_REGISTRATION": {"broker_id": 2, "log_dirs": []},
            "BROKER_ID_NOT_REGISTERED": {"broker_id": 2, "is_migrating_zk_broker": True},
        }
        for error, values in refuse.items():
            assert await refusal(harness.register(**values)) == error
        taken = harness.controller.image.brokers[1].directories
        assert await refusal(harness.register(2, log_dirs=list(taken))) == "INVALID_REGISTRATION"
        twice = [Uuid(b"x" * 16)] * 2
        assert await refusal(harness.register(2, log_dirs=twice)) == "INVALID_REGISTRATION"
        assert await refusal(harness.register(2, log_dirs=[Uuid(bytes(15) + b"\x05")])) == "INVALID_REGISTRATION"
        request = harness.registration(2)
        request.features = [each for each in request.features if each.name != "metadata.version"]
        assert await refusal(harness.controller.register_broker(Caller(), request)) == "INVALID_REGISTRATION"
        request = harness.registration(2)
        for each in request.features:
            each.max_supported_version = min(each.max_supported_version, 25)
        assert await refusal(harness.controller.register_broker(Caller(), request)) == "UNSUPPORTED_VERSION"
        assert set(harness.controller.image.brokers) == {1}

    run(story)


def test_same_incarnation_keeps_its_epoch(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        epoch = harness.epochs[1]
        assert (await harness.register(1)).broker_epoch == epoch
        assert harness.controller.image.is_active(1)

    run(story)


def test_silent_broker_is_fenced_and_its_partitions_move(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "a", [[1, 2], [2, 1]])
        await create(harness, "alone", [[1]])
        for _ in range(8):
            harness.now += SESSION_MS // 8 + 10
            await harness.heartbeat(2)
            harness.controller.tick()
        await harness.until(lambda: harness.controller.image.brokers[1].fenced)
        image = harness.controller.image
        assert image.is_active(2)
        moved = harness.partition("a", 0)
        assert (moved.leader, moved.isr, moved.leader_epoch) == (2, (2,), 1)
        kept = harness.partition("a", 1)
        assert (kept.leader, kept.isr) == (2, (2,)) and kept.partition_epoch == 1
        assert harness.partition("alone", 0).leader == -1
        # Its heartbeats alone unfence the broker.
        assert not (await harness.heartbeat(1)).is_fenced
        assert harness.partition("alone", 0).leader == 1
        assert harness.partition("a", 0).leader == 2

    run(story)


def test_controller_fences_nobody_for_the_time_it_did_not_run(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        harness.controller.tick()
        harness.now += 10 * SESSION_MS
        harness.controller.tick()
        await harness.heartbeat(1)
        assert harness.controller.image.is_active(1)

    run(story)


def test_only_broker_may_leave(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        await create(harness, "a", [[1]])
        assert (await harness.heartbeat(1, want_shut_down=True)).should_shut_down
        assert harness.partition("a", 0).leader == -1
        # After a clean shutdown, the new incarnation has all records and becomes leader again.
        before = harness.epochs[1]
        await harness.register(1, 2, previous_broker_epoch=before)
        await harness.heartbeat(1)
        row = harness.partition("a", 0)
        assert (row.leader, row.isr, row.recovery_state) == (1, (1,), 0)

    run(story)


@pytest.mark.parametrize(("level", "recovery_state"), [(30, 1), (21, 0)])
def test_crashed_broker_leads_its_only_replicas_again(run, level, recovery_state) -> None:
    async def story(harness):
        await harness.brokers(1)
        await create(harness, "a", [[1]])
        harness.hear_nothing(SESSION_MS + 1)
        epoch = harness.partition("a", 0).leader_epoch
        await harness.register(1, 2)
        assert harness.partition("a", 0).leader == -1
        await harness.heartbeat(1)
        row = harness.partition("a", 0)
        # An unclean shutdown has an effect if eligible leader replicas are enabled: the controller elects the last
        # known leader, in the recovery state RECOVERING.
        assert (row.leader, row.isr, row.recovery_state) == (1, (1,), recovery_state)
        assert row.leader_epoch == epoch + 2 and row.last_known_elr == () and row.elr == ()

    run(story, level=level)


def test_replica_in_sync_below_the_minimum_stays_eligible(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3)
        await create(harness, "a", [[1, 2, 3]], **{"min.insync.replicas": "2"})
        await harness.heartbeat(2, want_fence=True)
        assert harness.partition("a", 0).elr == ()
        await harness.heartbeat(3, want_fence=True)
        row = harness.partition("a", 0)
        assert (row.leader, row.isr, row.elr) == (1, (1,), (3,))
        await harness.heartbeat(1, want_fence=True)
        row = harness.partition("a", 0)
        assert (row.leader, row.isr, row.elr, row.last_known_elr) == (-1, (), (1, 3), (1,))
        await harness.heartbeat(2)
        assert harness.partition("a", 0).leader == -1
        await harness.heartbeat(3)
        row = harness.partition("a", 0)
        assert (row.leader, row.isr, row.elr, row.last_known_elr, row.recovery_state) == (3, (3,), (1,), (), 0)

    run(story)


def test_broker_restarted_with_its_controller_does_not_wait_for_a_session(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        await harness.driver.stop()
        await harness.start()
        await harness.until(lambda: harness.controller.active)
        assert harness.controller.image.is_active(1)
        await harness.register(1, 2)
        assert not (await harness.heartbeat(1)).is_fenced

    run(story)


def test_stale_broker_epoch_is_refused(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        assert await refusal(harness.heartbeat(1, broker_epoch=99)) == "STALE_BROKER_EPOCH"
        harness.epochs[8] = 1
        assert await refusal(harness.heartbeat(8)) == "STALE_BROKER_EPOCH"
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=99)
        assert await refusal(harness.controller.allocate_producer_ids(Caller(), request)) == "STALE_BROKER_EPOCH"

    run(story)


def test_no_producer_id_is_allocated_twice(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=harness.epochs[1])
        blocks = [await harness.controller.allocate_producer_ids(Caller(), request) for _ in range(3)]
        await harness.driver.stop()
        await harness.start()
        await harness.until(lambda: harness.controller.active)
        blocks.append(await harness.controller.allocate_producer_ids(Caller(), request))
        assert [(each.producer_id_start, each.producer_id_len) for each in blocks] == [
            (0, 1000), (1000, 1000), (2000, 1000), (3000, 1000)]  # fmt: skip

    run(story)


def test_failed_directory_loses_its_leaders(run) -> None:
    async def story(harness):
        one, other = Uuid(b"a" * 16), Uuid(b"b" * 16)
        await harness.brokers(1, log_dirs=[one, other])
        await harness.brokers(2)
        await create(harness, "a", [[1, 2], [1, 2]])
        image = harness.controller.image
        made = AssignReplicasToDirsRequest
        topic = image.topic("a").topic_id

        def lies(directory, topic_id, index):
            partitions = [made.PartitionData(partition_index=index)]
            return made.DirectoryData(id=directory, topics=[made.TopicData(topic_id=topic_id, partitions=partitions)])

        told = [lies(one, topic, 0), lies(other, topic, 1), lies(one, topic, 9), lies(one, uuid_of(77), 0)]
        request = made(broker_id=1, broker_epoch=harness.epochs[1], directories=told)
        response = await harness.controller.assign_replicas_to_dirs(Caller(), request)
        codes = [p.error_code for d in response.directories for t in d.topics for p in t.partitions]
        assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]
        assert harness.partition("a", 0).directory(1) == one and harness.partition("a", 1).directory(1) == other
        await harness.heartbeat(1, offline_log_dirs=[one])
        assert harness.controller.image.brokers[1].directories == (other,)
        assert (harness.partition("a", 0).leader, harness.partition("a", 1).leader) == (2, 1)

    run(story)


def uuid_of(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def test_controller_registers(run) -> None:
    async def story(harness):
        made = ControllerRegistrationRequest
        request = made(
            controller_id=1, incarnation_id=uuid_of(3), zk_migration_ready=False,
            listeners=[made.Listener(name="CONTROLLER", host="h", port=9, security_protocol=0)],
            features=[made.Feature(name="metadata.version", min_supported_version=1, max_supported_version=30)],
        )  # fmt: skip
        await harness.controller.register_controller(Caller(), request)
        assert harness.controller.image.controllers[1].endpoints[0].port == 9

    run(story)


def test_idle_log_gets_a_no_op_record(run) -> None:
    async def story(harness):
        before = harness.log.end_offset
        harness.now += 600
        harness.controller.tick()
        assert harness.log.end_offset == before + 1
        harness.controller.tick()
        assert harness.log.end_offset == before + 1

    run(story, metadata_max_idle_interval_ms="500")


def test_new_cluster_begins_with_the_bootstrap_records(run) -> None:
    async def story(harness):
        image = harness.controller.image
        assert image.features["metadata.version"] == 30 and image.elr_enabled and image.transaction is None
        assert image.config(4, "")["min.insync.replicas"] == "1"
        await harness.driver.stop()
        end = harness.log.end_offset
        await harness.start()
        await harness.until(lambda: harness.controller.active)
        # The restart adds only the first record of the new epoch to the log.
        assert harness.log.end_offset == end + 1

    run(story)


def test_controller_drops_its_uncommitted_root_when_it_loses_its_epoch(run) -> None:
    async def story(harness):
        import asyncio

        await harness.brokers(1)
        controller, committed = harness.controller, harness.controller.image
        harness.log.stall()
        waiting = asyncio.ensure_future(create(harness, "a", [[1]]))
        for _ in range(2):
            await asyncio.sleep(0)
            if controller._head is not committed:
                break
        controller.on_following(99)
        assert await refusal(waiting) == "NOT_CONTROLLER"
        assert controller._head is controller.image and controller.image.topic("a") is None
        assert await refusal(harness.heartbeat(1)) == "NOT_CONTROLLER"

    run(story)


def test_roots_of_controller_and_broker_agree(run) -> None:
    async def story(harness):
        from kafkacore.metadata.snapshot import records_of

        await harness.brokers(1, 2)
        await create(harness, "a", [[1, 2]] * 5, **{"retention.ms": "7"})
        await harness.heartbeat(1, want_fence=True)
        told = [repr(each) for each in records_of(harness.controller.image)]
        assert told == [repr(each) for each in records_of(harness.applied.publisher.image)]
        assert harness.adopted.image is harness.controller.image
        assert harness.applied.publisher.image.offset == harness.controller.image.offset

    run(story)


def test_min_isr_is_the_topics_the_nodes_the_clusters_or_the_files(run):
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "a", [[1, 2]])
        image, settings = harness.controller.image, harness.settings
        topic = image.topic("a")
        assert min_isr(image, settings, topic) == 1
        edit = Edit(image)
        for resource_type, name, value in ((4, "", "2"), (4, "1", "3"), (4, "2", "1"), (2, "a", "1")):
            edit.replay(ConfigRecord(resource_type=resource_type, resource_name=name, name=KEY, value=value))
            told = edit.freeze(image.offset + 1, 1, 0)
            # The expected value is at most the number of replicas of the first partition.
            expected = {"": 2, "1": 2, "2": 2, "a": 1}[name]
            assert min_isr(told, settings, topic) == expected
            assert topic_setting(told, settings, "a", KEY, 1) == {"": 2, "1": 3, "2": 3, "a": 1}[name]
            edit = Edit(told)

    run(story)


def test_invalid_stored_value_does_not_affect_elections(run, caplog):
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "a", [[1, 2]])
        image, settings = harness.controller.image, harness.settings
        edit = Edit(image)
        for resource_type, name, value in ((4, "", "2"), (4, "1", "two"), (2, "a", "9" * 5000)):
            edit.replay(ConfigRecord(resource_type=resource_type, resource_name=name, name=KEY, value=value))
        edit.replay(ConfigRecord(resource_type=2, resource_name="a", name=UNCLEAN_ELECTION, value="perhaps"))
        told = edit.freeze(image.offset + 1, 1, 0)
        for _ in range(3):
            assert min_isr(told, settings, told.topic("a")) == 2
            assert not unclean_elections(told, settings, "a")
        assert sum("min.insync.replicas=two" in each for each in caplog.messages) == 1

    run(story)


@pytest.mark.parametrize(("text", "allowed"), [("True", True), (" TRUE ", True), ("true", True), ("False", False)])
def test_unclean_election_is_allowed_in_any_accepted_spelling(run, text, allowed):
    async def story(harness):
        edit = Edit(harness.controller.image)
        edit.replay(ConfigRecord(resource_type=4, resource_name="", name=UNCLEAN_ELECTION, value=text))
        told = edit.freeze(harness.controller.image.offset + 1, 1, 0)
        assert unclean_elections(told, harness.settings, "a") is allowed

    run(story)


def test_sessions_that_expire_in_one_check_are_one_decision(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3, 4)
        await create(harness, "a", [[1, 2, 4], [1, 2, 3]])
        harness.hear_nothing(SESSION_MS - 1)
        harness.controller._liveness.heard(4, harness.epochs[4], harness.now)
        harness.hear_nothing(1)
        harness.controller.tick()
        await harness.until(lambda: harness.controller.image.brokers[3].fenced)
        one, other = (harness.partition("a", index) for index in (0, 1))
        assert (one.leader, one.isr, one.leader_epoch, one.partition_epoch) == (4, (4,), 1, 1)
        # The last leader stays in the ISR, because it has the most records. It leads again when it comes back.
        assert (other.leader, other.isr, other.leader_epoch, other.partition_epoch) == (-1, (1,), 1, 1)
        assert harness.controller.image.brokers[1].fenced
        assert not harness.controller.image.brokers[4].fenced

    run(story, level=21)


@pytest.mark.parametrize(("least", "eligible"), [("1", (1,)), ("2", (1, 3)), ("3", (1, 2, 3))])
def test_only_the_last_of_brokers_lost_together_are_eligible(run, least, eligible) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3)
        await create(harness, "a", [[1, 2, 3]], **{KEY: least})
        harness.hear_nothing(SESSION_MS)
        harness.controller.tick()
        await harness.until(lambda: harness.controller.image.brokers[3].fenced)
        row = harness.partition("a", 0)
        assert (row.leader, row.isr, row.elr, row.last_known_elr) == (-1, (), eligible, (1,))

    run(story)


def test_failed_fencing_is_retried_and_does_not_delay_others(run, monkeypatch, caplog):
    async def story(harness):
        await harness.brokers(1, 2)
        fence, failing = cluster.fence, [1]

        def fails(image, settings, *brokers):
            if any(broker.broker_id in failing for broker in brokers):
                raise ValueError("no decision")
            return fence(image, settings, *brokers)

        monkeypatch.setattr(cluster, "fence", fails)
        for _ in range(9):
            harness.now += SESSION_MS // 8 + 10
            harness.controller.tick()
        await harness.until(lambda: harness.controller.image.brokers[2].fenced)
        assert not harness.controller.image.brokers[1].fenced
        assert "broker 1 sends no heartbeats and could not be fenced" in caplog.text
        failing.clear()
        harness.now += SESSION_MS // 8
        harness.controller.tick()
        await harness.until(lambda: harness.controller.image.brokers[1].fenced)

    run(story)


def test_unregistered_broker_leaves_its_isrs_and_its_session(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "a", [[1, 2]])
        epoch = harness.controller.image.brokers[1].epoch
        response = await harness.controller.unregister_broker(Caller(), UnregisterBrokerRequest(broker_id=1))
        assert response.error_code == 0
        image = harness.controller.image
        assert set(image.brokers) == {2}
        partition = image.partition(image.topic("a"), 0)
        assert (partition.leader, list(partition.isr), list(partition.replicas)) == (2, [2], [1, 2])
        with pytest.raises(KafkaError) as refused:
            await harness.heartbeat(1, broker_epoch=epoch)
        assert ErrorCode(refused.value.code).name in ("STALE_BROKER_EPOCH", "BROKER_ID_NOT_REGISTERED")
        again = harness.controller.unregister_broker(Caller(), UnregisterBrokerRequest(broker_id=1))
        assert await refusal(again) == "BROKER_ID_NOT_REGISTERED"

    run(story)


def small_batches(append):
    """Returns an `append` that refuses batches of more than two records as too large."""
    return lambda records, values: append(records, values) if record_count(records) <= 2 else None


def test_broker_is_unregistered_when_its_partitions_need_several_batches(run, monkeypatch) -> None:
    monkeypatch.setattr(controller, "MAX_RECORDS_PER_BATCH", 2)

    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "a", [[1, 2]] * 40)
        monkeypatch.setattr(harness.driver, "append", small_batches(harness.driver.append))
        response = await harness.controller.unregister_broker(Caller(), UnregisterBrokerRequest(broker_id=1))
        assert response.error_code == 0 and set(harness.controller.image.brokers) == {2}
        assert {harness.partition("a", index).leader for index in range(40)} == {2}

    run(story)
