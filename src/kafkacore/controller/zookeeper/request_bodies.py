"""The bodies of LeaderAndIsr 0 to 7, UpdateMetadata 0 to 8 and StopReplica 0 to 4.

LeaderAndIsr 0 and 1, UpdateMetadata 0 to 4 and StopReplica 0 have no broker epoch. So a broker that has restarted
cannot detect that such a request was sent before its restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from kafkacore.controller.zookeeper.context import ControllerContext
from kafkacore.controller.zookeeper.leadership import (
    INITIAL_LEADER_EPOCH,
    INITIAL_PARTITION_EPOCH,
    LEADER_DURING_DELETE,
    Ids,
)
from kafkacore.controller.zookeeper.surroundings import ControllerSettings, LiveBroker
from kafkacore.protocol.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from kafkacore.protocol.uuid import ZERO
from kafkacore.runtime.slices import Work
from kafkacore.zookeeper.znodes import Endpoint

# The ids of SecurityProtocol in UpdateMetadata.
_SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
T = TypeVar("T")


class Bodies:
    """Makes the request bodies of one event. A part that is the same for several brokers is made only once."""

    def __init__(self, context: ControllerContext, settings: ControllerSettings) -> None:
        self._context = context
        self._settings = settings
        self._metadata: dict[tuple[int, ...], Any] = {}
        self._leaderships: dict[tuple[int, bool], Any] = {}
        self._live_brokers: list[Any] | None = None
        self._offline: dict[Ids, list[int]] = {}  # keyed by the replicas
        self._directories_failed = context.has_offline_directories

    # --- LeaderAndIsr ---

    def leader_and_isr(self, version: int, broker: LiveBroker, rows: Mapping[int, bool]) -> Work[Any]:
        """Returns a LeaderAndIsrRequest. `rows` maps each partition's row to whether its replica is new."""
        context = self._context
        body = LeaderAndIsrRequest(
            controller_id=self._settings.broker_id, controller_epoch=context.epoch, broker_epoch=broker.epoch
        )
        states: dict[str, list[Any]] = {}  # by topic
        leaders = set()
        for row, is_new in rows.items():
            state = self._leadership(row, is_new)
            states.setdefault(state.topic_name, []).append(state)
            leaders.add(state.leader)
            yield
        if version < 2:
            body.ungrouped_partition_states = [state for each in states.values() for state in each]
        else:
            body.topic_states = [
                LeaderAndIsrRequest.LeaderAndIsrTopicState(
                    topic_name=topic, topic_id=self._topic_id(topic), partition_states=partitions
                )
                for topic, partitions in states.items()
            ]
        body.live_leaders = [
            LeaderAndIsrRequest.LeaderAndIsrLiveLeader(
                broker_id=each.broker_id, host_name=endpoint.host, port=endpoint.port
            )
            for each in context.brokers.values()
            if each.broker_id in leaders and (endpoint := self._inter_broker_endpoint(each)) is not None
        ]
        return body

    def _leadership(self, row: int, is_new: bool) -> Any:
        made = self._leaderships.get((row, is_new))
        if made is not None:
            return made
        now, assignment, name = self._context.leaderships[row], self._context.assignments[row], self._context.name(row)
        assert now is not None, f"{name} has no leadership to send"
        made = self._leaderships[row, is_new] = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            topic_name=name.topic,
            partition_index=name.partition,
            controller_epoch=now.controller_epoch,
            leader=now.leader,
            leader_epoch=now.leader_epoch,
            isr=list(now.isr),
            partition_epoch=now.partition_epoch,
            replicas=list(assignment.replicas),
            adding_replicas=list(assignment.adding),
            removing_replicas=list(assignment.removing),
            is_new=is_new,
            leader_recovery_state=now.recovery_state,
        )
        return made

    def _inter_broker_endpoint(self, broker: LiveBroker) -> Endpoint | None:
        listener = self._settings.inter_broker_listener
        return next((each for each in broker.registration.endpoints if each.listener == listener), None)

    # --- UpdateMetadata ---

    def update_metadata(self, version: int, broker: LiveBroker, rows: tuple[int, ...]) -> Work[Any]:
        if self._live_brokers is None:
            self._live_brokers = [_live_broker(version, each) for each in self._context.brokers.values()]
        body = UpdateMetadataRequest(
            controller_id=self._settings.broker_id,
            controller_epoch=self._context.epoch,
            broker_epoch=broker.epoch,
            live_brokers=self._live_brokers,
        )
        states = self._metadata.get(rows)
        if states is None:
            states = self._metadata[rows] = yield from self._metadata_states(version, rows)
        if version < 5:
            body.ungrouped_partition_states = states
        else:
            body.topic_states = states
        return body

    def _metadata_states(self, version: int, rows: tuple[int, ...]) -> Work[list[Any]]:
        states: dict[str, list[Any]] = {}  # by topic
        for row in rows:
            state = self._partition_metadata(row)
            if state is not None:
                states.setdefault(state.topic_name, []).append(state)
            yield
        if version < 5:
            return [state for each in states.values() for state in each]
        return [
            UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name=topic, topic_id=self._topic_id(topic), partition_states=partitions
            )
            for topic, partitions in states.items()
        ]

    def _partition_metadata(self, row: int) -> Any | None:
        """Returns the partition's entry in UpdateMetadata, or None if the partition has no leader yet."""
        context = self._context
        now, replicas = context.leaderships[row], context.assignments[row].replicas
        if now is None:
            return None
        if context.is_deleted(row):
            now = now._replace(
                leader=LEADER_DURING_DELETE, leader_epoch=INITIAL_LEADER_EPOCH, partition_epoch=INITIAL_PARTITION_EPOCH
            )
        name = context.name(row)
        offline = self._offline.get(replicas)
        if offline is None or self._directories_failed:
            offline = self._offline[replicas] = [each for each in replicas if not context.is_online(row, each)]
        return UpdateMetadataRequest.UpdateMetadataPartitionState(
            topic_name=name.topic,
            partition_index=name.partition,
            controller_epoch=now.controller_epoch,
            leader=now.leader,
            leader_epoch=now.leader_epoch,
            isr=list(now.isr),
            zk_version=now.partition_epoch,
            replicas=list(replicas),
            offline_replicas=offline,
        )

    # --- StopReplica ---

    def stop_replica(self, version: int, broker: LiveBroker, rows: Mapping[int, bool]) -> Any:
        """Returns a StopReplicaRequest. `rows` maps each partition's row to whether its replica is to be deleted."""
        context = self._context
        body = StopReplicaRequest(
            controller_id=self._settings.broker_id, controller_epoch=context.epoch, broker_epoch=broker.epoch
        )
        if version < 3:
            body.delete_partitions = any(rows.values())
        if version == 0:
            body.ungrouped_partitions = [
                StopReplicaRequest.StopReplicaPartitionV0(topic_name=name.topic, partition_index=name.partition)
                for name in map(context.name, rows)
            ]
        elif version < 3:
            numbers = self._by_topic({row: context.name(row).partition for row in rows})
            body.topics = [
                StopReplicaRequest.StopReplicaTopicV1(name=topic, partition_indexes=indexes)
                for topic, indexes in numbers.items()
            ]
        else:
            states = {row: self._stop(row, delete) for row, delete in rows.items()}
            body.topic_states = [
                StopReplicaRequest.StopReplicaTopicState(topic_name=topic, partition_states=partitions)
                for topic, partitions in self._by_topic(states).items()
            ]
        return body

    def _stop(self, row: int, delete: bool) -> Any:
        return StopReplicaRequest.StopReplicaPartitionState(
            partition_index=self._context.name(row).partition,
            leader_epoch=self._context.leader_epoch(row),
            delete_partition=delete,
        )

    # --- all of them ---

    def _topic_id(self, topic: str) -> Any:
        return self._context.topics[topic].topic_id or ZERO

    def _by_topic(self, states: Mapping[int, T]) -> dict[str, list[T]]:
        grouped: dict[str, list[T]] = {}
        for row, state in states.items():
            grouped.setdefault(self._context.name(row).topic, []).append(state)
        return grouped


def _live_broker(version: int, broker: LiveBroker) -> Any:
    endpoints: Iterable[Endpoint] = broker.registration.endpoints
    made = UpdateMetadataRequest.UpdateMetadataBroker(id=broker.broker_id, rack=broker.registration.rack)
    if version == 0:
        plain = next((each for each in endpoints if each.security_protocol == "PLAINTEXT"), None)
        if plain is not None:
            made.v0_host, made.v0_port = plain.host, plain.port
        return made
    made.endpoints = [
        UpdateMetadataRequest.UpdateMetadataEndpoint(
            port=each.port,
            host=each.host,
            listener=each.listener,
            security_protocol=_SECURITY_PROTOCOLS[each.security_protocol],
        )
        for each in endpoints
    ]
    return made
