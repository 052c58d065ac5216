"""The states of a replica and the transitions between them (redesign, ReplicaStateMachine)."""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import Final


class ReplicaState(IntEnum):
    """The states of a replica. The numbers are those that Apache Kafka uses."""

    NEW = 1  # created by a reassignment or with its topic; the replica can only follow
    ONLINE = 2  # the replica has started and may lead or follow
    OFFLINE = 3  # the replica's broker shut down or failed, or a reassignment removed the replica
    DELETION_STARTED = 4  # the controller has sent a StopReplica that deletes the replica
    DELETION_SUCCESSFUL = 5  # the replica's broker has deleted it
    DELETION_INELIGIBLE = 6  # the replica's broker is down, or answered StopReplica with an error
    NON_EXISTENT = 7  # the replica never existed, or its deletion is complete


# Maps each state to the states that can follow it.
TRANSITIONS: Final = MappingProxyType(
    {
        ReplicaState.NON_EXISTENT: frozenset({ReplicaState.NEW}),
        ReplicaState.NEW: frozenset({ReplicaState.ONLINE, ReplicaState.OFFLINE}),
        ReplicaState.ONLINE: frozenset({ReplicaState.ONLINE, ReplicaState.OFFLINE}),
        ReplicaState.OFFLINE: frozenset(
            {
                ReplicaState.ONLINE,
                ReplicaState.OFFLINE,
                ReplicaState.DELETION_STARTED,
                # This transition is not in the redesign document. In Apache Kafka 3.9, the dead replicas of a topic
                # that is being deleted get this state (TopicDeletionManager.onPartitionDeletion).
                ReplicaState.DELETION_INELIGIBLE,
            }
        ),
        ReplicaState.DELETION_STARTED: frozenset({ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_INELIGIBLE}),
        ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.NON_EXISTENT}),
        ReplicaState.DELETION_INELIGIBLE: frozenset({ReplicaState.ONLINE, ReplicaState.OFFLINE}),
    }
)
