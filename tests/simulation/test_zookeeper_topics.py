"""Topics in a cluster with ZooKeeper controllers: creation, deletion in two phases, and expansion."""

import json

from tests.support.model_broker import stops
from tests.support.zookeeper_controllers import refuse_once, run_cluster

from kafkacore.controller.zookeeper.inter_broker_protocol import InterBrokerProtocol
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.uuid import Uuid
from kafkacore.server.zookeeper.metrics import controller_metrics
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import Delete, Multi

TOPIC_ID = Uuid(bytes(range(16)))


def started(world, *ids, **settings):
    world.start_brokers(*(ids or (1, 2, 3)), **settings)


# --- three ways to create: a tool, CreateTopics and Metadata all write the topic znode ---


def test_topic_of_a_tool_gets_leaders_and_an_id():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2, 3], 1: [2, 3, 1]})
        world.settle()
        assert world.state("events", 0)["leader"] == 1
        assert world.state("events", 1)["isr"] == [2, 3, 1]
        assert "topic_id" in json.loads(world.node(paths.topic("events")).data)

    run_cluster(story)


def test_topic_of_a_broker_keeps_the_id_that_the_broker_gave_it():
    def story(world):
        started(world)
        world.create_topic("events", {0: [3, 1]}, TOPIC_ID)
        world.settle()
        assert json.loads(world.node(paths.topic("events")).data)["topic_id"] == str(TOPIC_ID)
        assert world.lives[1].model.hosted["events", 0].topic_id == TOPIC_ID

    run_cluster(story)


def test_topics_that_come_together_are_created_with_one_request_of_a_kind_for_each_broker():
    def story(world):
        started(world)
        active = world.active()
        active.machine.pause()  # all topics already exist when the controller reads the znodes
        for number in range(50):
            world.create_topic(f"topic-{number}", {partition: [1, 2, 3] for partition in range(10)})
        world.requests.clear()
        writes = world.zookeeper.writes
        active.machine.resume()
        world.settle()
        for broker_id in (1, 2, 3):
            # There is one event for the new topics, and a second one because the controller writes ids to their znodes.
            assert len(world.sent(ApiKey.LEADER_AND_ISR, broker_id)) == 1
            assert len(world.sent(ApiKey.UPDATE_METADATA, broker_id)) == 1
        assert world.zookeeper.writes - writes < 10
        assert world.state("topic-49", 9)["isr"] == [1, 2, 3]

    run_cluster(story)


def test_topic_gets_no_id_below_2_8():
    def story(world):
        started(world, inter_broker_protocol=InterBrokerProtocol("2.7"))
        world.create_topic("events", {0: [1, 2, 3]})
        world.settle()
        assert "topic_id" not in json.loads(world.node(paths.topic("events")).data)
        (request, *_) = world.sent(ApiKey.LEADER_AND_ISR)
        assert request[4] == 4

    run_cluster(story)


def test_partition_waits_as_new_when_no_replica_is_alive():
    def story(world):
        started(world)
        world.create_topic("events", {0: [4, 5]})
        world.settle()
        assert world.state("events", 0) is None
        world.start_broker(5)
        world.settle()
        assert world.state("events", 0)["leader"] == 5

    run_cluster(story)


def test_topic_whose_znode_cannot_be_read_is_left_out_until_it_is_corrected():
    def story(world):
        started(world)
        for content in (b"{", b"[]", b'{"version":3,"partitions":{"x":[1]}}', b'{"partitions":{"0":"1"}}', b""):
            world.put_znode(paths.topic("bad"), content)
            world.create_topic(f"good-{len(content)}", {0: [1, 2]})
            world.settle()
            assert "bad" not in world.active().controller.context.topics
            assert world.state(f"good-{len(content)}", 0)["leader"] == 1
        world.put_znode(
            paths.topic("bad"), znodes.encode_topic(znodes.TopicAssignment(None, {0: znodes.Assignment([2, 3])}))
        )
        world.settle()
        assert world.state("bad", 0)["leader"] == 2

    run_cluster(story)


def test_topic_with_the_id_of_another_topic_is_left_out():
    def story(world):
        started(world)
        world.create_topic("first", {0: [1]}, TOPIC_ID)
        world.settle()
        world.create_topic("second", {0: [1]}, TOPIC_ID)
        world.settle()
        assert list(world.active().controller.context.topics) == ["first"]
        world.do(Delete(paths.topic("second")))

    run_cluster(story)


# --- two ways to delete: a tool and DeleteTopics both write /admin/delete_topics/TOPIC ---


def test_topic_is_deleted_in_two_phases():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2, 3], 1: [2, 3, 1]})
        world.settle()
        world.requests.clear()
        world.delete_topic("events")
        world.settle()
        assert world.node(paths.topic("events")) is None
        assert world.node(paths.delete_topic("events")) is None
        for broker_id in (1, 2, 3):
            (metadata, *_) = world.sent(ApiKey.UPDATE_METADATA, broker_id)
            leaders = {each.leader for topic in metadata[5].topic_states for each in topic.partition_states}
            assert leaders == {-2}  # phase one marks the topic as being deleted
            (stop,) = world.sent(ApiKey.STOP_REPLICA, broker_id)
            assert all(delete for _, _, delete in stops(stop[4], stop[5]))
            assert all(each.leader_epoch == -2 for topic in stop[5].topic_states for each in topic.partition_states)
            assert not world.lives[broker_id].model.hosted

    run_cluster(story)


def test_configuration_of_a_deleted_topic_goes_too():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2]})
        world.put_znode(paths.config("topics", "events"), znodes.encode_config({"retention.ms": "1"}))
        world.settle()
        world.delete_topic("events")
        world.settle()
        assert world.node(paths.config("topics", "events")) is None

    run_cluster(story)


def test_configuration_of_a_deleted_topic_goes_before_another_topic_can_have_its_name():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2]})
        world.put_znode(paths.config("topics", "events"), znodes.encode_config({"retention.ms": "1"}))
        world.settle()
        tree, deleted = world.zookeeper.tree, []
        write = tree.write

        def watched_write(operation, *rest):
            parts = operation.operations if isinstance(operation, Multi) else (operation,)
            deleted.extend(each.path for each in parts if isinstance(each, Delete))
            return write(operation, *rest)

        tree.write = watched_write
        world.delete_topic("events")
        world.settle()
        assert deleted.index(paths.config("topics", "events")) < deleted.index(paths.topic("events"))

    run_cluster(story)


def test_topic_of_the_same_name_can_be_created_after_its_deletion():
    def story(world):
        started(world)
        for _ in range(3):
            world.create_topic("events", {0: [1, 2, 3]})
            world.settle()
            assert world.state("events", 0)["leader_epoch"] == 0
            world.delete_topic("events")
            world.settle()
        world.create_topic("events", {0: [2, 1]})
        world.settle()
        assert world.state("events", 0)["leader"] == 2

    run_cluster(story)


def test_order_to_delete_an_unknown_topic_is_withdrawn():
    def story(world):
        started(world)
        world.delete_topic("nothing")
        world.settle()
        assert world.node(paths.delete_topic("nothing")) is None

    run_cluster(story)


def test_order_is_withdrawn_when_topics_must_not_be_deleted():
    def story(world):
        started(world, delete_topic_enable=False)
        world.create_topic("events", {0: [1, 2]})
        world.settle()
        world.delete_topic("events")
        world.settle()
        assert world.node(paths.delete_topic("events")) is None
        assert world.state("events", 0)["leader"] == 1

    run_cluster(story)


def test_deletion_waits_for_a_broker_that_is_down():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2, 3]})
        world.settle()
        world.kill(3)
        world.settle()
        world.delete_topic("events")
        world.settle()
        controller = world.active().controller
        world.wait_for(lambda: controller.gauges.topics_ineligible_to_delete == 1)
        assert world.node(paths.topic("events")) is not None
        assert not world.lives[1].model.hosted
        world.start_broker(3)
        world.lives[3].model.hosted["events", 0] = None  # the broker finds this replica on its disk
        world.settle()
        assert world.node(paths.topic("events")) is None
        assert world.lives[3].model.stopped

    run_cluster(story)


def gauges(controller):
    """Returns the gauges that the metrics of this controller show, by name."""
    shown = controller_metrics(controller.gauges, controller.state, is_active=controller.is_active)
    return {each.name: each.value for each in shown}


def test_gauges_show_a_deletion_when_it_waits_for_a_broker_and_nothing_when_the_controller_has_moved():
    def story(world):
        started(world)
        world.create_topic("kept", {0: [1, 2]})
        world.create_topic("events", {0: [1, 2, 3], 1: [2, 3, 1]})
        world.settle()
        former = world.active().controller
        world.kill(3)
        world.delete_topic("events")
        expected = {
            "ActiveControllerCount": 1,
            "ControllerState": 0,
            "ActiveBrokerCount": 2,
            "GlobalTopicCount": 2,
            "GlobalPartitionCount": 3,
            "OfflinePartitionsCount": 0,
            "PreferredReplicaImbalanceCount": 0,
            "TopicsToDeleteCount": 1,
            "ReplicasToDeleteCount": 2,
            "TopicsIneligibleToDeleteCount": 1,
            "ReplicasIneligibleToDeleteCount": 2,
        }
        world.wait_for(lambda: gauges(former) == expected)
        world.move_controller()
        world.wait_for(lambda: not former.is_active)
        world.wait_for(lambda: former.state == "Idle")
        assert gauges(former) == dict.fromkeys(expected, 0)

    run_cluster(story)


def test_deletion_is_retried_when_a_replica_refuses():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2, 3]})
        world.settle()
        model = world.lives[2].model
        model.refuses_deletion.add(("events", 0))
        world.delete_topic("events")
        world.settle()
        world.wait_for(lambda: world.active().controller.gauges.replicas_ineligible_to_delete == 1)
        assert world.node(paths.topic("events")) is not None
        model.refuses_deletion.clear()
        world.step_for(8)
        world.settle()
        assert world.node(paths.topic("events")) is None

    run_cluster(story)


def test_deletion_goes_on_after_a_failover():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2, 3], 1: [1, 2, 3]})
        world.settle()
        for life in world.alive():
            life.model.refuses_deletion.update({("events", 0), ("events", 1)})
        world.delete_topic("events")
        world.settle()
        for life in world.alive():
            life.model.refuses_deletion.clear()
        world.move_controller()
        world.settle()
        assert world.node(paths.topic("events")) is None

    run_cluster(story)


def test_deletion_waits_for_a_reassignment():
    def story(world):
        started(world, 1, 2, 3, 4)
        world.create_topic("events", {0: [1, 2]})
        world.settle()
        for life in world.alive():
            life.model.proposes = False  # without a proposal, no replica becomes in sync
        world.reassign({("events", 0): [3, 4]})
        world.settle()
        world.delete_topic("events")
        world.settle()
        assert world.node(paths.topic("events")) is not None
        for life in world.alive():
            life.model.proposes = True
            life.model.propose_soon()
        world.settle()
        assert world.node(paths.topic("events")) is None

    run_cluster(story)


# --- expansion ---


def expanded(partitions, topic_id):
    return znodes.encode_topic(
        znodes.TopicAssignment(topic_id, {number: znodes.Assignment(each) for number, each in partitions.items()})
    )


def test_partitions_that_an_administrator_adds_get_leaders():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2]}, TOPIC_ID)
        world.settle()
        world.requests.clear()
        world.put_znode(paths.topic("events"), expanded({0: [1, 2], 1: [2, 3], 2: [3, 1]}, TOPIC_ID))
        world.settle()
        assert world.state("events", 1)["leader"] == 2
        assert world.state("events", 2)["leader"] == 3
        sent = {
            each.partition_index
            for request in world.sent(ApiKey.LEADER_AND_ISR)
            for topic in request[5].topic_states
            for each in topic.partition_states
        }
        assert sent == {1, 2}

    run_cluster(story)


def test_topic_grows_when_zookeeper_refuses_the_first_read():
    """The refused read sets no watch, so no later change would be noticed either."""

    def story(world):
        started(world)
        world.create_topic("events", {0: [1]}, TOPIC_ID)
        world.settle()
        active = world.active()
        refused = refuse_once(active, paths.topic("events"))
        world.put_znode(paths.topic("events"), expanded({0: [1], 1: [1]}, TOPIC_ID))
        world.wait_for(lambda: world.state("events", 1) is not None)
        assert refused
        assert world.active() is active

    run_cluster(story)


def test_topic_can_grow_again():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1]}, TOPIC_ID)
        for count in (2, 3, 4):
            world.settle()
            world.put_znode(paths.topic("events"), expanded({each: [1] for each in range(count)}, TOPIC_ID))
        world.settle()
        assert world.state("events", 3)["leader"] == 1

    run_cluster(story)


def test_topic_that_is_being_deleted_does_not_grow():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2, 3]}, TOPIC_ID)
        world.settle()
        world.lives[3].model.refuses_deletion.add(("events", 0))
        world.delete_topic("events")
        world.settle()
        world.put_znode(paths.topic("events"), expanded({0: [1, 2, 3], 1: [1, 2, 3]}, TOPIC_ID))
        world.settle()
        assert list(json.loads(world.node(paths.topic("events")).data)["partitions"]) == ["0"]
        world.lives[3].model.refuses_deletion.clear()
        world.step_for(8)
        world.settle()
        assert world.node(paths.topic("events")) is None

    run_cluster(story)
