"""Reassignments and elections of preferred leaders, in a cluster with ZooKeeper controllers."""

import json

import pytest
from tests.support.model_broker import stops
from tests.support.zookeeper_controllers import error_of, run_cluster

from kafkacore.controller.zookeeper import access
from kafkacore.controller.zookeeper.protocols.preferred_election import imbalanced
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from kafkacore.runtime import slices
from kafkacore.zookeeper import paths
from kafkacore.zookeeper.operations import SetData

EVENTS = ("events", 0)


def started(world, *ids, partitions=None, **settings):
    world.start_brokers(*(ids or (1, 2, 3, 4)), **settings)
    world.create_topic("events", partitions or {0: [1, 2]})
    world.settle()


def hold_back(world, proposes=False):
    """Makes leaders propose no ISR, so that a reassignment only adds its new replicas and then waits."""
    for life in world.alive():
        life.model.proposes = proposes
        if proposes:
            life.model.propose_soon()


def alter(world, moves):
    topics = {}
    for (topic, number), replicas in moves.items():
        topics.setdefault(topic, []).append(
            AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=number, replicas=replicas)
        )
    request = AlterPartitionReassignmentsRequest(
        topics=[
            AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )
    response = world.ask("alter_reassignments", request)
    return {
        (topic.name, each.partition_index): ErrorCode(each.error_code)
        for topic in response.responses
        for each in topic.partitions
    }


def under_way(world):
    response = world.ask("list_reassignments", ListPartitionReassignmentsRequest(topics=None))
    return {
        (topic.name, each.partition_index): (each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in response.topics
        for each in topic.partitions
    }


# --- expansion and contraction ---


def test_partition_moves_when_the_znode_asks_for_it():
    def story(world):
        started(world)
        world.reassign({EVENTS: [3, 4]})
        world.settle()
        state = world.state(*EVENTS)
        assert world.assignment(*EVENTS) == [3, 4]
        assert sorted(state["isr"]) == [3, 4]
        assert state["leader"] == 3
        assert world.node(paths.REASSIGN_PARTITIONS) is None
        for broker_id in (1, 2):
            assert world.lives[broker_id].model.stopped[-1][2], "the old replica must be deleted"

    run_cluster(story)


def test_old_and_new_replicas_are_together_during_the_expansion():
    def story(world):
        started(world)
        hold_back(world)
        world.reassign({EVENTS: [3, 4]})
        world.settle()
        topic = json.loads(world.node(paths.topic("events")).data)
        assert topic["partitions"]["0"] == [3, 4, 1, 2]
        assert topic["adding_replicas"]["0"] == [3, 4]
        assert topic["removing_replicas"]["0"] == [1, 2]
        assert world.state(*EVENTS)["leader_epoch"] == 1
        new = [
            each.is_new
            for request in world.sent(ApiKey.LEADER_AND_ISR, 3)
            for topic in request[5].topic_states
            for each in topic.partition_states
        ]
        assert new == [True]
        assert under_way(world) == {EVENTS: ([3, 4, 1, 2], [3, 4], [1, 2])}
        hold_back(world, proposes=True)
        world.settle()
        assert under_way(world) == {}

    run_cluster(story)


def test_leader_that_stays_begins_a_new_epoch():
    def story(world):
        started(world)
        world.reassign({EVENTS: [1, 3]})
        world.settle()
        state = world.state(*EVENTS)
        assert state["leader"] == 1
        assert state["leader_epoch"] >= 2

    run_cluster(story)


def test_many_partitions_move_in_few_round_trips():
    def story(world):
        started(world, partitions={number: [1, 2] for number in range(100)})
        writes = world.zookeeper.writes
        alter(world, {("events", number): [3, 4] for number in range(100)})
        world.settle()
        assert world.assignment("events", 99) == [3, 4]
        assert world.zookeeper.writes - writes < 40

    run_cluster(story)


def test_order_of_replicas_changes_without_a_copy():
    def story(world):
        started(world)
        assert alter(world, {EVENTS: [2, 1]}) == {EVENTS: ErrorCode.NONE}
        world.settle()
        assert world.assignment(*EVENTS) == [2, 1]
        assert not world.sent(ApiKey.STOP_REPLICA)

    run_cluster(story)


# --- the three criteria ---


def test_reassignment_is_refused_when_its_topic_is_being_deleted():
    def story(world):
        started(world)
        world.lives[2].model.refuses_deletion.add(EVENTS)
        world.delete_topic("events")
        world.settle()
        world.reassign({EVENTS: [3, 4]})
        world.settle()
        assert world.node(paths.REASSIGN_PARTITIONS) is None
        assert world.assignment(*EVENTS) == [1, 2]
        assert alter(world, {EVENTS: [3, 4]}) == {EVENTS: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        world.lives[2].model.refuses_deletion.clear()
        world.step_for(8)

    run_cluster(story)


def test_reassignment_that_is_under_way_is_not_begun_again():
    def story(world):
        started(world)
        hold_back(world)
        world.reassign({EVENTS: [3, 4]})
        world.settle()
        before = world.node(paths.topic("events")).version
        assert alter(world, {EVENTS: [3, 4]}) == {EVENTS: ErrorCode.NONE}
        world.settle()
        assert world.node(paths.topic("events")).version == before
        assert under_way(world) == {EVENTS: ([3, 4, 1, 2], [3, 4], [1, 2])}
        hold_back(world, proposes=True)

    run_cluster(story)


def test_other_partitions_of_the_znode_keep_their_leader_epochs_when_one_reassignment_ends():
    def story(world):
        started(world, partitions={number: [1, 2] for number in range(4)})
        hold_back(world)
        world.reassign({("events", number): [3, 4] for number in range(4)})
        world.settle()
        before = [world.state("events", number)["leader_epoch"] for number in range(4)]
        world.run_shrink("events", 0, [1, 2, 3, 4])
        world.settle()
        assert world.assignment("events", 0) == [3, 4]
        assert len(json.loads(world.node(paths.REASSIGN_PARTITIONS).data)["partitions"]) == 3
        assert [world.state("events", number)["leader_epoch"] for number in range(1, 4)] == before[1:]
        hold_back(world, proposes=True)
        world.settle()
        assert world.node(paths.REASSIGN_PARTITIONS) is None

    run_cluster(story)


def test_reassignment_that_changes_nothing_is_taken_out_of_the_znode():
    def story(world):
        started(world)
        world.reassign({EVENTS: [1, 2]})
        world.settle()
        assert world.node(paths.REASSIGN_PARTITIONS) is None
        assert not world.sent(ApiKey.STOP_REPLICA)
        assert world.state(*EVENTS)["isr"] == [1, 2]

    run_cluster(story)


@pytest.mark.parametrize("target", [[2], [2, 3], [2, 1]])
def test_partition_that_never_had_a_leader_moves_when_a_new_replica_is_live(target):
    def story(world):
        started(world, 2, 4, partitions={0: [1]}, auto_leader_rebalance_enable=False)
        assert world.state(*EVENTS) is None
        world.reassign({EVENTS: target})
        world.settle()
        assert world.state(*EVENTS)["leader"] == 2
        for broker_id in (1, 3):
            world.start_broker(broker_id)
            world.settle()
        assert under_way(world) == {}
        assert world.assignment(*EVENTS) == target
        assert sorted(world.state(*EVENTS)["isr"]) == sorted(target)
        assert world.node(paths.REASSIGN_PARTITIONS) is None

    run_cluster(story)


# --- KIP-455 ---


def test_another_target_replaces_a_reassignment_that_is_under_way():
    def story(world):
        started(world)
        hold_back(world)
        world.reassign({EVENTS: [3, 4]})
        world.settle()
        assert alter(world, {EVENTS: [2, 4]}) == {EVENTS: ErrorCode.NONE}
        world.settle()
        assert world.node(paths.REASSIGN_PARTITIONS) is None
        assert under_way(world) == {EVENTS: ([2, 4, 1], [4], [1])}
        assert world.lives[3].model.stopped[-1][:3] == (*EVENTS, True)
        hold_back(world, proposes=True)
        world.settle()
        assert world.assignment(*EVENTS) == [2, 4]

    run_cluster(story)


def test_partition_keeps_a_leader_when_another_target_leaves_out_the_replica_that_leads():
    def story(world):
        started(world, auto_leader_rebalance_enable=False)
        hold_back(world)
        alter(world, {EVENTS: [3, 4]})
        world.settle()
        world.run_shrink(*EVENTS, [1, 2, 3])
        world.elect_preferred(EVENTS)
        world.settle()
        assert world.state(*EVENTS)["leader"] == 3
        assert alter(world, {EVENTS: [4, 2]}) == {EVENTS: ErrorCode.NONE}
        world.settle()
        assert world.state(*EVENTS)["leader"] == 2
        hold_back(world, proposes=True)
        world.settle()
        assert under_way(world) == {}
        assert world.assignment(*EVENTS) == [4, 2]

    run_cluster(story)


def test_new_replica_is_not_elected_when_another_target_replaces_the_target_of_a_partition_without_a_leader():
    def story(world):
        started(world, auto_leader_rebalance_enable=False, unclean_leader_election_enable=True)
        first, second, third = (life.broker_id for life in world.alive() if not life.controller.is_active)
        world.create_topic("more", {0: [first]})
        world.settle()
        world.kill(first)
        world.settle()
        world.reassign({("more", 0): [first, second]})
        world.settle()
        assert alter(world, {("more", 0): [first, third]}) == {("more", 0): ErrorCode.NONE}
        world.settle()
        assert world.state("more", 0)["leader"] == -1
        world.start_broker(first)
        world.settle()
        assert world.assignment("more", 0) == [first, third]
        assert world.state("more", 0)["leader"] == first
        world.delete_topic("more")
        world.settle()
        assert world.node(paths.topic("more")) is None

    run_cluster(story)


def test_reassignment_is_cancelled_by_a_request_without_replicas():
    def story(world):
        started(world)
        hold_back(world)
        alter(world, {EVENTS: [3, 4]})
        world.settle()
        assert alter(world, {EVENTS: None}) == {EVENTS: ErrorCode.NONE}
        hold_back(world, proposes=True)
        world.settle()
        assert world.assignment(*EVENTS) == [1, 2]
        assert alter(world, {EVENTS: None}) == {EVENTS: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}

    run_cluster(story)


@pytest.mark.parametrize("later", [[4, 1], [1, 9]])
def test_later_entry_of_a_partition_is_refused_when_a_request_names_the_partition_twice(later):
    def story(world):
        started(world)
        hold_back(world)
        entries = [
            AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=each)
            for each in ([3, 1], later)
        ]
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="events", partitions=entries)
        response = world.ask("alter_reassignments", AlterPartitionReassignmentsRequest(topics=[topic]))
        codes = [each.error_code for each in response.responses[0].partitions]
        assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
        assert under_way(world) == {EVENTS: ([3, 1, 2], [3], [2])}
        hold_back(world, proposes=True)

    run_cluster(story)


@pytest.mark.parametrize("target", [None, [1], [4, 1]])
def test_reassignment_goes_on_when_only_its_new_replicas_are_in_sync(target):
    def story(world):
        started(world, 2, 4, partitions={0: [1]}, auto_leader_rebalance_enable=False)
        world.reassign({EVENTS: [2, 3]})
        world.settle()
        assert world.state(*EVENTS)["isr"] == [2]
        if target != [1]:
            assert alter(world, {EVENTS: target}) == {EVENTS: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
        else:
            world.reassign({EVENTS: target})
            world.settle()
            assert world.node(paths.REASSIGN_PARTITIONS) is None
        assert world.assignment(*EVENTS) == [2, 3, 1]
        assert world.state(*EVENTS)["leader"] == 2
        assert not world.lives[2].model.stopped
        world.start_broker(1)
        world.settle()
        assert alter(world, {EVENTS: target}) == {EVENTS: ErrorCode.NONE}
        world.settle()
        assert world.assignment(*EVENTS) == (target or [1])
        assert 1 in world.state(*EVENTS)["isr"]

    run_cluster(story)


@pytest.mark.parametrize("replicas", [[], [3, 3], [-1, 3], [3, 9]])
def test_wrong_replicas_of_a_request_are_refused(replicas):
    def story(world):
        started(world)
        version = world.node(paths.topic("events")).version
        assert alter(world, {EVENTS: replicas}) == {EVENTS: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
        assert world.node(paths.topic("events")).version == version

    run_cluster(story)


@pytest.mark.parametrize("number", [0, 7])
@pytest.mark.parametrize("last", [[], [1], [-1]])
def test_refusal_can_be_encoded_when_a_request_names_very_many_brokers(number, last):
    def story(world):
        started(world)
        replicas = [*range(1, 10_000), *last]
        entry = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=number, replicas=replicas)
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="events", partitions=[entry])
        response = world.ask("alter_reassignments", AlterPartitionReassignmentsRequest(topics=[topic]))
        decoded = type(response).decode(memoryview(bytes(response.encode(0))), 0)
        [answer] = decoded.responses[0].partitions
        assert (answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == (number == 7)
        assert answer.error_code
        assert world.assignment(*EVENTS) == [1, 2]

    run_cluster(story)


def test_unknown_partition_is_refused_beside_a_good_one():
    def story(world):
        started(world)
        answer = alter(world, {EVENTS: [3, 4], ("events", 7): [1, 2], ("nothing", 0): [1]})
        assert answer == {
            EVENTS: ErrorCode.NONE,
            ("events", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    run_cluster(story)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"version":1}',
        b'{"partitions":[{"topic":"events"}]}',
        b'{"partitions":[{"topic":1,"partition":0,"replicas":[1]}]}',
    ],
)
def test_wrong_json_of_a_reassignment_waits_for_its_correction(content):
    def story(world):
        started(world)
        world.put_znode(paths.REASSIGN_PARTITIONS, content)
        world.settle()
        assert world.assignment(*EVENTS) == [1, 2]
        assert world.node(paths.REASSIGN_PARTITIONS).data == content
        world.reassign({EVENTS: [3, 4]})
        world.settle()
        assert world.assignment(*EVENTS) == [3, 4]

    run_cluster(story)


@pytest.mark.parametrize("replicas", [[], [3, 3]])
def test_impossible_entries_are_taken_out_of_the_znode(replicas):
    def story(world):
        started(world, partitions={0: [1, 2], 1: [1, 2]})
        world.reassign({EVENTS: replicas, ("events", 1): [3, 4], ("gone", 0): [1]})
        world.settle()
        assert world.assignment(*EVENTS) == [1, 2]
        assert world.assignment("events", 1) == [3, 4]
        assert world.node(paths.REASSIGN_PARTITIONS) is None

    run_cluster(story)


def test_reassignment_to_a_broker_that_is_down_goes_on_when_it_joins():
    def story(world):
        started(world, 1, 2, 3)
        world.reassign({EVENTS: [3, 4]})
        world.settle()
        assert under_way(world)
        world.start_broker(4)
        world.settle()
        assert world.assignment(*EVENTS) == [3, 4]

    run_cluster(story)


def test_old_replicas_stay_until_a_target_replica_is_live():
    def story(world):
        started(world, 1, 2, 3, 4, partitions={0: [4, 2, 3]}, auto_leader_rebalance_enable=False)
        for broker_id in (2, 3, 4):
            world.kill(broker_id)
            world.settle()
        for broker_id in (2, 3):
            world.start_broker(broker_id)
        world.settle()
        assert (world.state(*EVENTS)["leader"], world.state(*EVENTS)["isr"]) == (-1, [4])
        assert alter(world, {EVENTS: [4]}) == {EVENTS: ErrorCode.NONE}
        world.settle()
        assert under_way(world) == {EVENTS: ([4, 2, 3], [], [2, 3])}
        assert all(EVENTS in world.disks[broker_id] for broker_id in (2, 3))
        world.start_broker(4)
        world.settle()
        assert world.assignment(*EVENTS) == [4]
        assert world.state(*EVENTS)["leader"] == 4

    run_cluster(story)


def test_reassignment_goes_on_after_a_failover():
    def story(world):
        started(world)
        hold_back(world)
        world.reassign({EVENTS: [3, 4]})
        world.settle()
        world.kill(world.active().broker_id)
        world.wait_for(lambda: world.active() is not None)
        world.settle()
        hold_back(world, proposes=True)
        for broker_id in (1, 2, 3, 4):
            if not world.lives[broker_id].machine.is_alive:
                world.start_broker(broker_id)
        world.settle()
        assert world.assignment(*EVENTS) == [3, 4]
        assert world.node(paths.REASSIGN_PARTITIONS) is None

    run_cluster(story)


# --- preferred elections ---


def unbalanced(world, **settings):
    """Makes a state in which broker 1 leads no partition, although it is the first replica of every partition."""
    world.start_brokers(1, 2, 3, **settings)
    world.create_topic("events", {number: [1, 2, 3] for number in range(4)})
    world.settle()
    world.kill(1)
    world.wait_for(lambda: world.active() is not None)
    world.settle()
    world.start_broker(1)
    world.settle()
    assert {world.state("events", number)["leader"] for number in range(4)} == {2}


def test_preferred_replica_leads_again_when_the_znode_asks_for_it():
    def story(world):
        unbalanced(world)
        for number in range(4):  # one after another, so that the controller notices each of them
            world.elect_preferred(("events", number))
            world.settle()
            assert world.state("events", number)["leader"] == 1
            assert world.node(paths.PREFERRED_ELECTION) is None

    run_cluster(story)


def test_preferred_replica_leads_again_by_itself_when_too_many_leaders_are_elsewhere():
    def story(world):
        unbalanced(world, leader_imbalance_check_interval_seconds=30)
        active = world.active().controller
        assert len(imbalanced(active.context, 10)) == 4
        world.wait_for(lambda: active.gauges.preferred_replica_imbalance == 4)
        world.step_for(40)
        world.settle()
        assert {world.state("events", number)["leader"] for number in range(4)} == {1}
        assert not imbalanced(active.context, 10)

    run_cluster(story)


def test_leaders_stay_elsewhere_when_the_automatic_election_is_off():
    def story(world):
        unbalanced(world, leader_imbalance_check_interval_seconds=30, auto_leader_rebalance_enable=False)
        world.step_for(70)
        assert world.state("events", 0)["leader"] == 2

    run_cluster(story)


def elect(world, kind, *names, version=2):
    partitions = {}
    for topic, number in names:
        partitions.setdefault(topic, []).append(number)
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[
            ElectLeadersRequest.TopicPartitions(topic=topic, partitions=numbers)
            for topic, numbers in partitions.items()
        ]
        if names
        else None,
    )
    response = world.ask("elect_leaders", request, version)
    return {
        (each.topic, result.partition_id): ErrorCode(result.error_code)
        for each in response.replica_election_results
        for result in each.partition_result
    }


def test_elect_leaders_answers_for_each_partition():
    def story(world):
        unbalanced(world)
        names = [("events", 0), ("events", 9), ("nothing", 0)]
        assert elect(world, 0, *names) == {
            ("events", 0): ErrorCode.NONE,
            ("events", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert elect(world, 0, ("events", 0)) == {("events", 0): ErrorCode.ELECTION_NOT_NEEDED}
        assert elect(world, 0) == {("events", number): ErrorCode.NONE for number in (1, 2, 3)}
        world.settle()
        assert (
            world.ask("elect_leaders", ElectLeadersRequest(election_type=5), 2).error_code == ErrorCode.INVALID_REQUEST
        )

    run_cluster(story)


def requests_that_name(numbers):
    """Returns requests about these partitions of topic `events`, with the names of the controller's coroutines."""
    alter = AlterPartitionReassignmentsRequest
    moved = [alter.ReassignablePartition(partition_index=number, replicas=[1, 2]) for number in numbers]
    elected = ElectLeadersRequest.TopicPartitions(topic="events", partitions=list(numbers))
    listed = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(
        name="events", partition_indexes=list(numbers)
    )
    return {
        "elect_leaders": ElectLeadersRequest(election_type=0, topic_partitions=[elected]),
        "alter_reassignments": alter(topics=[alter.ReassignableTopic(name="events", partitions=moved)]),
        "list_reassignments": ListPartitionReassignmentsRequest(topics=[listed]),
    }


REQUESTS = ("elect_leaders", "alter_reassignments", "list_reassignments")


@pytest.mark.parametrize("method", REQUESTS[:2])
def test_request_is_refused_when_it_names_too_many_partitions(method):
    def story(world):
        started(world)
        request = requests_that_name(range(10_001))[method]
        assert error_of(world, method, request) == ErrorCode.POLICY_VIOLATION
        request = requests_that_name([*range(10_000), *range(10_000)])[method]
        assert error_of(world, method, request) == ErrorCode.NONE

    run_cluster(story)


@pytest.mark.parametrize("method", REQUESTS)
def test_controller_interrupts_its_work_when_a_request_names_many_partitions(method, monkeypatch):
    steps = []

    def counting(work):
        def counted():
            while True:
                try:
                    steps.append(next(work))
                except StopIteration as end:
                    return end.value
                yield

        return slices.finish(counted())

    def story(world):
        started(world)
        monkeypatch.setattr(access, "finish", counting)
        world.ask(method, requests_that_name([7] * 1000)[method])
        assert len(steps) >= 1000

    run_cluster(story)


def test_list_has_a_reassignment_once_when_the_request_names_it_twice():
    def story(world):
        started(world)
        hold_back(world)
        alter(world, {EVENTS: [3, 4]})
        [topic] = world.ask("list_reassignments", requests_that_name([0, 0, 7])["list_reassignments"]).topics
        assert [each.partition_index for each in topic.partitions] == [0]
        hold_back(world, proposes=True)

    run_cluster(story)


def test_other_partitions_are_elected_when_a_partition_has_no_replicas():
    def story(world):
        unbalanced(world)
        world.create_topic("empty", {0: []})
        world.settle()
        expected = {("events", number): ErrorCode.NONE for number in range(4)}
        assert elect(world, 0) == expected | {("empty", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        assert {world.state("events", number)["leader"] for number in range(4)} == {1}

    run_cluster(story)


def test_new_controller_takes_over_when_an_election_is_asked_for_a_partition_without_replicas():
    def story(world):
        unbalanced(world)
        world.create_topic("empty", {0: []})
        world.settle()
        former = world.active()
        world.kill(former.broker_id)
        world.elect_preferred(("empty", 0), ("events", 0))
        world.wait_for(lambda: world.active() not in (None, former))
        epoch = world.controller_epoch()
        world.settle()
        assert world.node(paths.PREFERRED_ELECTION) is None
        assert world.controller_epoch() == epoch
        world.start_broker(former.broker_id)
        world.settle()

    run_cluster(story)


def test_preferred_replica_that_is_down_cannot_lead():
    def story(world):
        world.start_brokers(1, 2, 3)
        victim = next(each for each in (1, 2, 3) if each != world.active().broker_id)
        others = [each for each in (1, 2, 3) if each != victim]
        world.create_topic("events", {0: [victim, *others]})
        world.settle()
        world.kill(victim)
        world.settle()
        assert elect(world, 0, EVENTS) == {EVENTS: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        assert elect(world, 1, EVENTS) == {EVENTS: ErrorCode.ELECTION_NOT_NEEDED}
        world.elect_preferred(EVENTS)
        world.settle()
        assert world.node(paths.PREFERRED_ELECTION) is None

    run_cluster(story)


def test_unclean_election_elects_a_replica_when_the_isr_has_only_a_live_broker_that_is_no_replica():
    """A controller of Apache Kafka can leave such a state."""

    def story(world):
        world.invariants.uncleanly = True
        started(world)
        state = world.state(*EVENTS) | {"leader": -1, "isr": [3], "leader_epoch": 7}
        world.do(SetData(paths.partition_state(*EVENTS), json.dumps(state).encode()))
        world.move_controller()
        world.step_for(1)
        world.settle()
        assert world.state(*EVENTS)["leader"] == -1
        assert elect(world, 1, EVENTS) == {EVENTS: ErrorCode.NONE}
        world.settle()
        assert world.state(*EVENTS)["leader"] == 1

    run_cluster(story)


def test_unclean_election_that_an_operator_asks_for_elects_from_outside_the_isr():
    def story(world):
        world.invariants.uncleanly = True
        world.start_brokers(1, 2, 3)
        keeper = world.active().broker_id
        first = next(each for each in (1, 2, 3) if each != keeper)
        world.create_topic("events", {0: [first, keeper]})
        world.settle()
        world.lives[first].model.proposes = False
        world.run_shrink("events", 0, [first])
        world.kill(first)
        world.settle()
        assert world.state(*EVENTS)["leader"] == -1
        assert elect(world, 1, EVENTS) == {EVENTS: ErrorCode.NONE}
        world.settle()
        assert world.state(*EVENTS)["leader"] == keeper

    run_cluster(story)


@pytest.mark.parametrize("content", [b"", b"{", b'{"version":1}', b'{"partitions":[{"topic":"events"}]}'])
def test_wrong_json_of_an_election_waits_for_its_correction(content):
    def story(world):
        unbalanced(world)
        world.put_znode(paths.PREFERRED_ELECTION, content)
        world.settle()
        assert world.state("events", 0)["leader"] == 2
        world.do(SetData(paths.PREFERRED_ELECTION, b'{"version":1,"partitions":[{"topic":"events","partition":0}]}'))
        world.settle()
        assert world.state("events", 0)["leader"] == 1

    run_cluster(story)


def test_topic_that_is_being_deleted_is_skipped():
    def story(world):
        unbalanced(world)
        for life in world.alive():
            life.model.refuses_deletion.update(("events", number) for number in range(4))
        world.delete_topic("events")
        world.settle()
        assert elect(world, 0, EVENTS) == {EVENTS: ErrorCode.INVALID_TOPIC_EXCEPTION}
        for life in world.alive():
            life.model.refuses_deletion.clear()
        world.step_for(8)

    run_cluster(story)


def test_stopped_replicas_of_a_reassignment_are_named_once():
    def story(world):
        started(world, partitions={number: [1, 2] for number in range(10)})
        alter(world, {("events", number): [3, 4] for number in range(10)})
        world.settle()
        for broker_id in (1, 2):
            named = [
                each for request in world.sent(ApiKey.STOP_REPLICA, broker_id) for each in stops(request[4], request[5])
            ]
            assert len(named) == len(set(named)) == 10

    run_cluster(story)
