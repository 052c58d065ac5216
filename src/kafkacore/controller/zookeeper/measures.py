"""Measures how long events wait for the controller, how long they run, and how long brokers take to answer. The metrics
have the names of Apache Kafka 3.9 (ControllerEventManager, ControllerStats)."""

from __future__ import annotations

from typing import Final

from kafkacore.runtime.sampling import Distribution

# Kafka's ControllerState, in the order of the numbers that its metric shows.
STATES: Final = (
    "Idle",
    "ControllerChange",
    "BrokerChange",
    "TopicChange",
    "TopicDeletion",
    "AlterPartitionReassignment",
    "AutoLeaderBalance",
    "ManualLeaderBalance",
    "ControlledShutdown",
    "IsrChange",
    "LeaderAndIsrResponseReceived",
    "LogDirChange",
    "ControllerShutdown",
    "UncleanLeaderElectionEnable",
    "TopicUncleanLeaderElectionEnable",
    "ListPartitionReassignment",
    "UpdateMetadataResponseReceived",
    "UpdateFeatures",
)
# Maps Kafka's name of a controller state to the name of its metric. The two differ where Kafka has kept an older
# metric.
_NAMES: Final = {
    "ControllerChange": "ControllerChange",
    "BrokerChange": "LeaderElection",
    "TopicChange": "TopicChange",
    "TopicDeletion": "TopicDeletion",
    "AlterPartitionReassignment": "PartitionReassignment",
    "AutoLeaderBalance": "AutoLeaderBalance",
    "ManualLeaderBalance": "ManualLeaderBalance",
    "ControlledShutdown": "ControlledShutdown",
    "IsrChange": "IsrChange",
    "LeaderAndIsrResponseReceived": "LeaderAndIsrResponseReceived",
    "LogDirChange": "LogDirChange",
    "UncleanLeaderElectionEnable": "UncleanLeaderElectionEnable",
    "ListPartitionReassignment": "ListPartitionReassignment",
    "UpdateFeatures": "UpdateFeatures",
}


class Measures:
    """Counts since the start of the node. One thread records, and any thread may read."""

    def __init__(self) -> None:
        self.queue_ms = Distribution()
        # The time from a change until one of the brokers has answered the request that reports the change.
        self.answered_ms = Distribution()
        self.unclean_elections = 0  # elections of leaders from outside the ISR
        self.running_ms = {f"{name}RateAndTimeMs": Distribution() for name in _NAMES.values()}

    def waited(self, ms: float) -> None:
        self.queue_ms.record(ms)

    def ran(self, state: str, ms: float) -> None:
        """Notes how long an event of this state ran. Kafka has no metric for events of the state Idle."""
        name = _NAMES.get(state)
        if name is not None:
            self.running_ms[f"{name}RateAndTimeMs"].record(ms)
