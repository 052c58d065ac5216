"""All transitions between the states of replicas and partitions, legal and illegal, compared with the table in the
design document."""

import itertools

import pytest

from kafkacore.controller.zookeeper import partition_states, replica_states
from kafkacore.controller.zookeeper.context import ControllerContext, Replica
from kafkacore.controller.zookeeper.leadership import Assignment
from kafkacore.controller.zookeeper.partition_states import PartitionState
from kafkacore.controller.zookeeper.replica_states import ReplicaState

PARTITION_TEXT = """
NON_EXISTENT -> NEW
NEW -> ONLINE, OFFLINE
ONLINE -> ONLINE, OFFLINE
OFFLINE -> ONLINE, OFFLINE, NON_EXISTENT
"""
REPLICA_TEXT = """
NON_EXISTENT -> NEW
NEW -> ONLINE, OFFLINE
ONLINE -> ONLINE, OFFLINE
OFFLINE -> ONLINE, OFFLINE, DELETION_STARTED
DELETION_STARTED -> DELETION_SUCCESSFUL, DELETION_INELIGIBLE
DELETION_SUCCESSFUL -> NON_EXISTENT
DELETION_INELIGIBLE -> ONLINE, OFFLINE
"""
ADDED_BY_KAFKA = {("OFFLINE", "DELETION_INELIGIBLE")}


def pairs(text):
    lines = (line.split(" -> ") for line in text.strip().splitlines())
    return {(state, target) for state, targets in lines for target in targets.split(", ")}


def context_with_one_replica():
    context = ControllerContext()
    row = context.add_partition(context.add_topic("events", None), 0, Assignment((1,)))
    return context, Replica(row, 1)


@pytest.mark.parametrize(("state", "target"), list(itertools.product(PartitionState, repeat=2)))
def test_partition_moves_when_the_document_lists_the_transition(state, target):
    context, (row, _) = context_with_one_replica()
    context.set_partition_states([row], state)
    moved = context.move_partitions([row], target)
    if (state.name, target.name) in pairs(PARTITION_TEXT):
        assert (moved, context.partition_states[row]) == ([row], target)
        assert not context.refused_transitions
    else:
        assert (moved, context.partition_states[row]) == ([], state)
        assert context.refused_transitions == {f"{state.name} -> {target.name}": 1}


@pytest.mark.parametrize(("state", "target"), list(itertools.product(ReplicaState, repeat=2)))
def test_replica_moves_when_the_document_or_kafka_lists_the_transition(state, target):
    context, replica = context_with_one_replica()
    context.set_replica_states([replica], state)
    moved = context.move_replicas([replica], target)
    if (state.name, target.name) in pairs(REPLICA_TEXT) | ADDED_BY_KAFKA:
        assert (moved, context.replica_state(replica)) == ([replica], target)
    else:
        assert (moved, context.replica_state(replica)) == ([], state)
        assert context.refused_transitions == {f"{state.name} -> {target.name}": 1}


def test_tables_have_a_row_for_each_state():
    assert partition_states.TRANSITIONS.keys() == set(PartitionState)
    assert replica_states.TRANSITIONS.keys() == set(ReplicaState)


def test_refused_transition_is_logged_with_the_partition(caplog):
    context, (row, _) = context_with_one_replica()
    context.move_partitions([row], PartitionState.ONLINE)
    assert "refused to move partition events-0 from NON_EXISTENT to ONLINE" in caplog.text


def test_rows_of_a_removed_topic_serve_another_one():
    context, replica = context_with_one_replica()
    context.set_replica_states([replica], ReplicaState.ONLINE)
    context.begin_moves([replica.row])
    context.rows_on_offline_directories[1] = {replica.row}
    context.remove_topic("events")
    row = context.add_partition(context.add_topic("other", None), 7, Assignment((1, 2)))
    assert row == replica.row
    assert context.name(row) == ("other", 7)
    assert context.leaderships[row] is None
    assert context.replica_state(Replica(row, 1)) is ReplicaState.NON_EXISTENT
    assert not context.reassigned
    assert not context.is_moved("events")
    assert not context.rows_on_offline_directories[1]
