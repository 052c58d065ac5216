"""Brokers in a cluster with ZooKeeper controllers. They join, fail, restart, shut down, and change their
registrations."""

import pytest
from tests.support.model_broker import stops
from tests.support.zookeeper_controllers import error_of, refuse_once, run_cluster

from kafkacore.controller.zookeeper.inter_broker_protocol import InterBrokerProtocol
from kafkacore.controller.zookeeper.leadership import TopicPartition
from kafkacore.controller.zookeeper.protocols.broker_failure import LeaderAndIsrResponses, LeaderAndIsrResult
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ControlledShutdownRequest
from kafkacore.server.zookeeper.metrics import channel_metrics, event_metrics
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import Create, CreateMode, SetData

MANY = {number: [[1, 2, 3], [2, 3, 1], [3, 1, 2]][number % 3] for number in range(60)}


def started(world, *ids, **settings):
    world.start_brokers(*(ids or (1, 2, 3)), **settings)


def other_than(world, *broker_ids):
    """Returns a broker that is not the controller and not among these brokers."""
    return next(each for each in world.lives if each != world.active().broker_id and each not in broker_ids)


def leave(world, broker_id, version=3, epoch=None):
    life = world.lives[broker_id]
    life.model.is_leaving = True
    request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=life.epoch if epoch is None else epoch)
    return world.ask("controlled_shutdown", request, version)


# --- brokers that fail ---


def test_partitions_of_a_failed_broker_get_leaders_in_two_bulk_writes():
    def story(world):
        started(world)
        world.create_topic("events", MANY)
        world.settle()
        victim = other_than(world)
        world.requests.clear()
        writes = world.zookeeper.writes
        world.kill(victim)
        world.settle()
        for number in MANY:
            state = world.state("events", number)
            assert state["leader"] != victim
            assert victim not in state["isr"]
        assert world.zookeeper.writes - writes <= 2
        for life in world.alive():
            assert len(world.sent(ApiKey.LEADER_AND_ISR, life.broker_id)) == 1
            assert len(world.sent(ApiKey.UPDATE_METADATA, life.broker_id)) == 1
        assert not world.sent(ApiKey.STOP_REPLICA)  # there is no live broker to send it to

    run_cluster(story)


def test_last_member_stays_in_the_isr_and_leads_again_when_it_joins():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2, 3]})
        world.settle()
        order = sorted((1, 2, 3), key=lambda each: each == world.active().broker_id)
        world.kill(order[0])
        world.settle()
        world.kill(order[1])
        world.settle()
        last = world.state("events", 0)["isr"]
        assert last == [order[2]]
        world.kill(order[2])
        world.step_for(2)
        world.start_broker(order[0])
        world.wait_for(lambda: world.active() is not None)
        world.settle()
        state = world.state("events", 0)
        assert (state["leader"], state["isr"]) == (-1, last)
        world.wait_for(lambda: world.active().controller.gauges.offline_partitions == 1)
        world.start_broker(order[2])
        world.settle()
        assert world.state("events", 0)["leader"] == order[2]

    run_cluster(story)


def shown(controller, name, broker_id=None):
    """Returns a metric of the controller's channels, of one broker or of all."""
    tags = () if broker_id is None else (("broker-id", str(broker_id)),)
    [found] = [
        each.value
        for each in channel_metrics(controller.senders, controller.measures)
        if (each.name, each.tags) == (name, tags)
    ]
    return found


def unclean_elections(controller):
    """Returns the number that the metrics of this controller show."""
    [shown] = [each for each in event_metrics(0, controller.measures) if each.name == "UncleanLeaderElectionsPerSec"]
    return shown.value


@pytest.mark.parametrize("where", ["topic", "default"])
def test_replica_from_outside_the_isr_leads_when_unclean_elections_are_allowed(where):
    def story(world):
        world.invariants.uncleanly = True
        started(world, unclean_leader_election_enable=where == "default")
        keeper = world.active().broker_id
        first = other_than(world)
        world.create_topic("events", {0: [first, keeper]})
        if where == "topic":
            config = znodes.encode_config({"unclean.leader.election.enable": "true"})
            world.put_znode(paths.config("topics", "events"), config)
        world.settle()
        world.lives[first].model.proposes = False
        world.run_shrink("events", 0, [first])
        world.kill(first)
        world.settle()
        state = world.state("events", 0)
        assert (state["leader"], state["isr"], state["leader_recovery_state"]) == (keeper, [keeper], 1)
        controller = world.active().controller
        assert unclean_elections(controller) == 1
        world.move_controller()
        world.wait_for(lambda: not controller.is_active)
        assert unclean_elections(controller) == 1, "the number of elections since the start of the node"

    run_cluster(story)


def lost(world):
    """Makes a partition without a leader: its only replica in sync is down. Returns the live replica."""
    world.invariants.uncleanly = True
    started(world)
    keeper = world.active().broker_id
    first = other_than(world)
    world.create_topic("events", {0: [first, keeper]})
    world.settle()
    world.lives[first].model.proposes = False
    world.run_shrink("events", 0, [first])
    world.kill(first)
    world.settle()
    assert world.state("events", 0)["leader"] == -1
    return keeper


def test_replica_from_outside_the_isr_leads_when_the_default_starts_to_allow_it():
    def story(world):
        keeper = lost(world)
        world.active().controller.set_unclean_default(is_allowed=True)
        world.settle()
        assert world.state("events", 0)["leader"] == keeper

    run_cluster(story)


@pytest.mark.parametrize(
    "config", [znodes.encode_config({"unclean.leader.election.enable": "false"}), b"{", b"[]", b'{"config":{"a":1}}']
)
def test_partition_stays_without_a_leader_when_its_topic_or_the_default_forbids_unclean_elections(config):
    def story(world):
        keeper = lost(world)
        controller = world.active().controller
        world.put_znode(paths.config("topics", "events"), config)
        controller.set_unclean_default(is_allowed=True)
        world.settle()
        assert world.state("events", 0)["leader"] == -1, "the topic's own setting counts more"
        controller.set_unclean_default(is_allowed=False)
        world.put_znode(paths.config("topics", "events"), znodes.encode_config({}))
        controller.allow_unclean_elections()
        world.settle()
        assert world.state("events", 0)["leader"] == -1
        controller.allow_unclean_elections("events")
        controller.set_unclean_default(is_allowed=True)
        world.settle()
        assert world.state("events", 0)["leader"] == keeper

    run_cluster(story)


def test_replicas_on_a_failed_log_directory_are_offline_until_it_works_again():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2, 3], 1: [1, 2, 3]})
        world.settle()
        world.lives[1].model.failed.add(("events", 0))
        world.lives[1].model.hosted.pop(("events", 0))
        data = znodes.encode_log_dir_event(1)
        world.do(Create(paths.log_dir_event(), data, CreateMode.PERSISTENT_SEQUENTIAL))
        world.settle()
        assert world.state("events", 0)["leader"] != 1
        assert 1 not in world.state("events", 0)["isr"]
        assert world.state("events", 1)["leader"] == 1
        assert not world.node(paths.LOG_DIR_EVENTS).children
        assert world.lives[2].model.metadata["events", 0][4] == [1]

    run_cluster(story)


def test_failed_log_directory_changes_nothing_when_its_replica_has_left_the_partition_meanwhile():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2, 3]})
        world.settle()
        controller = world.active().controller
        broker = controller.context.brokers[3]
        world.reassign({("events", 0): [1, 2]})
        world.settle()
        before = world.state("events", 0)
        errors = {TopicPartition("events", 0): ErrorCode.KAFKA_STORAGE_ERROR}
        controller.put(LeaderAndIsrResponses([LeaderAndIsrResult(broker, errors)]))
        world.settle()
        assert world.state("events", 0) == before
        assert not controller.context.has_offline_directories

    run_cluster(story)


def test_failed_log_directory_is_noticed_when_zookeeper_refuses_to_read_its_notification_at_first():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2, 3]})
        world.settle()
        refused = refuse_once(world.active(), f"{paths.log_dir_event()}{0:010}")
        world.lives[1].model.failed.add(("events", 0))
        world.lives[1].model.hosted.pop(("events", 0))
        world.do(Create(paths.log_dir_event(), znodes.encode_log_dir_event(1), CreateMode.PERSISTENT_SEQUENTIAL))
        world.wait_for(lambda: 1 not in world.state("events", 0)["isr"])
        assert refused

    run_cluster(story)


def test_failed_broker_is_noticed_when_zookeeper_refuses_the_first_read():
    """The refused read sets no watch, so no later change would be noticed either."""

    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2, 3]})
        world.settle()
        active, victim = world.active(), other_than(world)
        refused = refuse_once(active, paths.BROKER_IDS)
        world.kill(victim)
        world.wait_for(lambda: victim not in world.state("events", 0)["isr"])
        assert refused
        assert world.active() is active

    run_cluster(story)


# --- brokers that join ---


def test_broker_that_joins_hears_of_its_partitions_and_of_all_metadata():
    def story(world):
        started(world, 1, 2)
        world.create_topic("events", {0: [1, 2, 3], 1: [1, 2]})
        world.settle()
        world.requests.clear()
        world.start_broker(3)
        world.settle()
        first = world.sent(ApiKey.LEADER_AND_ISR, 3)[0][5]
        assert [each.partition_index for topic in first.topic_states for each in topic.partition_states] == [0]
        assert world.lives[3].model.metadata.keys() == {("events", 0), ("events", 1)}
        assert world.state("events", 0)["isr"] == [1, 2, 3]

    run_cluster(story)


def test_bounced_broker_gets_nothing_that_was_meant_for_its_former_life():
    def story(world):
        started(world)
        world.create_topic("events", MANY)
        world.settle()
        victim = other_than(world)
        active = world.active()
        active.machine.pause()
        life = world.bounce(victim)
        world.requests.clear()
        active.machine.resume()
        world.settle()
        for request in world.requests:
            if request[1] == victim:
                assert request[5].broker_epoch == life.epoch
        assert not world.sent(ApiKey.STOP_REPLICA, victim)
        assert len(life.model.hosted) == len(MANY)

    run_cluster(story)


def test_registration_that_cannot_be_read_is_ignored():
    def story(world):
        started(world)
        for content in (b"{}", b"nonsense", b'{"version":0}'):
            world.do(Create(paths.broker(9), content, CreateMode.EPHEMERAL))
            world.settle()
            assert 9 not in world.active().controller.context.brokers
            world.do(SetData(paths.broker(9), content + b" "))

    run_cluster(story)


def test_broker_joins_when_its_registration_can_be_read_again():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2, 3]})
        world.settle()
        life = world.lives[other_than(world)]
        registration = world.node(paths.broker(life.broker_id)).data
        world.do(SetData(paths.broker(life.broker_id), b"nonsense"))
        world.kill(other_than(world, life.broker_id))
        world.settle()
        brokers = world.active().controller.context.brokers
        assert life.broker_id not in brokers
        world.do(SetData(paths.broker(life.broker_id), registration))
        world.settle()
        assert brokers[life.broker_id].epoch == life.epoch
        assert life.broker_id in world.state("events", 0)["isr"]

    run_cluster(story)


def test_new_endpoint_of_a_broker_is_noticed_when_zookeeper_refuses_the_first_read():
    def story(world):
        started(world)
        active = world.active()
        victim = other_than(world)
        refused = refuse_once(active, paths.broker(victim))
        content = world.node(paths.broker(victim)).data.replace(b"9092", b"9192")
        world.do(SetData(paths.broker(victim), content))
        world.wait_for(lambda: active.controller.context.brokers[victim].registration.endpoints[0].port == 9192)
        assert refused

    run_cluster(story)


def test_new_endpoint_of_a_broker_reaches_all_brokers():
    def story(world):
        started(world)
        life = world.lives[other_than(world)]
        endpoint = znodes.Endpoint("PLAINTEXT", "PLAINTEXT", "elsewhere", 9999)
        data = znodes.encode_broker(znodes.BrokerRegistration(life.broker_id, (endpoint,)))
        world.requests.clear()
        world.do(SetData(paths.broker(life.broker_id), data))
        world.settle()
        for broker_id in (1, 2, 3):
            (request,) = world.sent(ApiKey.UPDATE_METADATA, broker_id)
            ports = {each.id: each.endpoints[0].port for each in request[5].live_brokers}
            assert ports[life.broker_id] == 9999

    run_cluster(story)


def test_requests_go_to_the_control_plane_listener_when_one_is_set():
    def story(world):
        started(world, control_plane_listener="CONTROLLER")
        world.create_topic("events", {0: [1, 2, 3]})
        world.settle()
        assert {listener for _, _, listener, *_ in world.requests} == {"CONTROLLER"}

    run_cluster(story)


def test_listener_of_brokers_serves_when_no_control_plane_is_set():
    def story(world):
        started(world)
        assert {listener for _, _, listener, *_ in world.requests} == {"PLAINTEXT"}

    run_cluster(story)


# --- controlled shutdown ---


def test_leaderships_leave_a_broker_that_shuts_down():
    def story(world):
        started(world)
        world.create_topic("events", MANY | {60: [1], 61: [2], 62: [3]})
        world.settle()
        leaver = other_than(world)
        world.requests.clear()
        writes = world.zookeeper.writes
        response = leave(world, leaver)
        assert response.error_code == ErrorCode.NONE
        assert not response.remaining_partitions  # a partition with a single replica cannot move, so it does not count
        for number in MANY:
            state = world.state("events", number)
            assert state["leader"] not in (leaver, -1)
            assert leaver not in state["isr"]
        assert world.zookeeper.writes - writes == 2
        world.settle()
        (stop,) = world.sent(ApiKey.STOP_REPLICA, leaver)
        stopped = stops(stop[4], stop[5])
        assert len(stopped) == len(set(stopped)) == 40  # one request for each partition that the broker followed
        assert len(world.sent(ApiKey.LEADER_AND_ISR, leaver)) == 1
        world.kill(leaver)
        world.settle()

    run_cluster(story)


def test_partition_remains_when_nobody_else_may_lead_it():
    def story(world):
        started(world)
        leaver = other_than(world)
        other = other_than(world, leaver)
        world.create_topic("events", {0: [leaver, other]})
        world.settle()
        world.lives[leaver].model.proposes = False
        world.run_shrink("events", 0, [leaver])
        remaining = leave(world, leaver).remaining_partitions
        assert [(each.topic_name, each.partition_index) for each in remaining] == [("events", 0)]
        world.lives[leaver].model.proposes = True
        world.kill(leaver)
        world.settle()

    run_cluster(story)


def test_shutdown_of_a_former_life_is_refused():
    def story(world):
        started(world)
        leaver = other_than(world)
        request = ControlledShutdownRequest(broker_id=leaver, broker_epoch=world.lives[leaver].epoch - 1)
        assert error_of(world, "controlled_shutdown", request, 3) == ErrorCode.STALE_BROKER_EPOCH
        assert leaver not in world.active().controller.context.shutting_down

    run_cluster(story)


def test_shutdown_of_versions_without_a_generation_is_not_fenced():
    def story(world):
        started(world)
        leaver = other_than(world)
        assert leave(world, leaver, version=1, epoch=-1).error_code == ErrorCode.NONE
        world.kill(leaver)

    run_cluster(story)


def test_shutdown_of_an_unknown_broker_is_refused():
    def story(world):
        started(world)
        request = ControlledShutdownRequest(broker_id=77, broker_epoch=-1)
        assert error_of(world, "controlled_shutdown", request, 3) == ErrorCode.BROKER_NOT_AVAILABLE

    run_cluster(story)


def test_broker_that_bounces_in_the_middle_of_its_shutdown_serves_again():
    def story(world):
        started(world)
        world.create_topic("events", MANY)
        world.settle()
        leaver = other_than(world)
        world.latency_s = (0.5, 1.0)  # requests of the shutdown are still in flight when the broker restarts
        leave(world, leaver)
        world.bounce(leaver)
        world.latency_s = (0.0005, 0.003)
        world.step_for(5)
        world.settle()
        assert len(world.lives[leaver].model.hosted) == len(MANY)
        assert not world.active().controller.context.shutting_down

    run_cluster(story)


def test_shutdown_is_refused_by_a_broker_that_is_not_the_controller():
    def story(world):
        started(world)
        life = world.lives[other_than(world)]
        request = ControlledShutdownRequest(broker_id=life.broker_id, broker_epoch=life.epoch)
        with pytest.raises(Exception, match="not the active controller"):
            world.on(life, life.controller.controlled_shutdown(request, 3))

    run_cluster(story)


@pytest.mark.parametrize("version", ["0.8.2", "0.9.0", "0.10.0", "0.10.2", "1.0", "2.2", "2.4-IV0", "2.4-IV1", "2.6"])
def test_requests_have_the_versions_of_old_protocols(version):
    """In these versions, leaders write ISRs to ZooKeeper themselves, but the leaders of this model do not."""

    def story(world):
        started(world, inter_broker_protocol=InterBrokerProtocol(version))
        for life in world.alive():
            life.model.proposes = False
        world.create_topic("events", {0: [1, 2, 3], 1: [2, 3, 1]})
        world.create_topic("others", {0: [3, 2, 1]})
        world.settle()
        world.delete_topic("others")
        world.settle()
        world.kill(other_than(world))
        world.settle()
        assert world.node(paths.topic("others")) is None

    run_cluster(story)


def test_broker_hears_of_the_live_brokers_before_a_role_names_one_of_them():
    """If a broker of Apache Kafka first receives a LeaderAndIsr with a leader that it does not know, it does not follow
    that leader, and never recovers."""

    def story(world):
        world.start_brokers(1, 2, 3)
        world.create_topic("events", {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})
        world.settle()
        world.bounce(2)
        world.settle()
        world.move_controller()
        world.settle()
        world.kill(3)
        world.settle()
        world.start_broker(3)
        world.settle()
        heard = {}
        roles = 0
        for _, to, _, api_key, _, request in world.requests:
            life = request.controller_epoch, to, request.broker_epoch
            if api_key == ApiKey.UPDATE_METADATA:
                heard[life] = {each.id for each in request.live_brokers}
            elif api_key == ApiKey.LEADER_AND_ISR:
                leaders = {each.leader for topic in request.topic_states for each in topic.partition_states}
                assert leaders - {-1} <= heard.get(life, set()), f"broker {to} does not know {leaders} yet"
                roles += 1
        assert len(heard) >= 8, "too few generations of brokers, under both controllers"
        assert roles >= len(heard)

    run_cluster(story)


def test_events_of_a_broker_failure_are_measured():
    def story(world):
        world.start_brokers(1, 2, 3)
        world.create_topic("events", {0: [1, 2, 3]})
        world.settle()
        controller = world.active().controller
        measures, before = controller.measures, sum(controller.measures.queue_ms.counts)
        assert sum(measures.running_ms["TopicChangeRateAndTimeMs"].counts) >= 1
        elections = sum(measures.running_ms["LeaderElectionRateAndTimeMs"].counts)
        world.kill(next(each for each in (1, 2, 3) if each != world.active().broker_id))
        world.settle()
        assert sum(measures.running_ms["LeaderElectionRateAndTimeMs"].counts) > elections
        assert measures.running_ms["LeaderElectionRateAndTimeMs"].total > 0, "the event waited for ZooKeeper"
        assert sum(measures.queue_ms.counts) > before

    run_cluster(story)


def test_answers_of_brokers_are_measured_from_the_change_on():
    def story(world):
        started(world)
        world.create_topic("events", {0: [1, 2, 3]})
        world.settle()
        controller = world.active().controller
        answered = controller.measures.answered_ms
        before, late = sum(answered.counts), other_than(world)
        world.lives[late].is_cut = True
        world.create_topic("more", {0: [late, world.active().broker_id]})
        states = set()
        world.wait_for(lambda: states.add(controller.state) or shown(controller, "QueueSize", late) == 1)
        assert "TopicChange" in states
        world.step_for(1)
        assert shown(controller, "TotalQueueSize") == 1, "LeaderAndIsr is in flight, UpdateMetadata waits"
        assert sum(answered.counts) - before == 3, "the other brokers have answered"
        world.step_for(10)
        world.lives[late].is_cut = False
        world.settle()
        assert shown(controller, "TotalQueueSize") == 0
        assert shown(controller, "RequestRateAndQueueTimeMs", late).total >= 10_000
        assert sum(answered.counts[answered.bounds.index(8192) + 1 :]) == 2, "these were answered 10 s after the change"

    run_cluster(story)
