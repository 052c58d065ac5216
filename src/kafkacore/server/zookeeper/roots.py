"""The two images of a broker in ZooKeeper mode.

A broker in KRaft mode has one image. In ZooKeeper mode the controller sends two kinds of requests, and two brokers may
receive them in different orders. LeaderAndIsr and StopReplica set this broker's roles. UpdateMetadata describes the
whole cluster for clients and gives no roles; it only ends the roles in partitions that have moved to other brokers. So
there is one image for each kind: `roles` has the partitions that this broker hosts, and `view` has all partitions. Both
have the live brokers and the configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkacore.metadata.edit import Edit
from kafkacore.metadata.image import TOPIC, ConfigKey, MetadataImage
from kafkacore.metadata.partition_records import PartitionRecords, PartitionRun
from kafkacore.metadata.partitions import Partition
from kafkacore.metadata.publishing import MetadataPublisher
from kafkacore.metadata.registrations import BrokerRegistration, Endpoint
from kafkacore.protocol.features import METADATA_VERSION
from kafkacore.protocol.made_ids import is_made
from kafkacore.protocol.messages import (
    ConfigRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from kafkacore.protocol.uuid import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, Uuid

NO_LEADER: Final = -1
NO_BROKER_EPOCH: Final = -1  # in ZooKeeper mode, no controller request contains the epochs of the other brokers


class TopicKey(NamedTuple):
    name: str
    topic_id: Uuid


class PartitionState(NamedTuple):
    """One partition in a request, with the field names of a PartitionRecord."""

    topic: TopicKey
    partition_id: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    directories: Sequence[Uuid] = ()
    leader_recovery_state: int = 0
    adding_replicas: Sequence[int] = ()
    removing_replicas: Sequence[int] = ()
    eligible_leader_replicas: Sequence[int] | None = None
    last_known_elr: Sequence[int] | None = None

    @property
    def topic_id(self) -> Uuid:
        return self.topic.topic_id


def role_of(key: TopicKey, known: Partition, leader: int | None = None) -> PartitionState:
    """Returns the state of a partition as the image has it, with another leader if `leader` is given."""
    return PartitionState(
        key, known.partition, known.leader if leader is None else leader, known.leader_epoch, known.partition_epoch,
        known.replicas, known.isr, known.directories, known.recovery_state, known.adding, known.removing,
    )  # fmt: skip


class LiveBroker(NamedTuple):
    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None


def directories_of_role(replicas: Sequence[int], *, is_new: bool) -> tuple[Uuid, ...]:
    """Returns the same marker for each replica, instead of a directory id. A new replica can be in any log directory.
    The log of an older replica may be in an offline directory. Then the replica's broker must not create a second log,
    which would begin at offset 0."""
    return (UNASSIGNED_DIRECTORY if is_new else MIGRATING_DIRECTORY,) * len(replicas)


def directories_of_view(replicas: Sequence[int], offline: Sequence[int]) -> tuple[Uuid, ...]:
    """Returns markers for replicas that the controller reports as offline."""
    if not offline:
        return ()
    return tuple([LOST_DIRECTORY if each in offline else MIGRATING_DIRECTORY for each in replicas])


class ZooKeeperRoots:
    """Belongs to the data plane's loop. `broker_epoch` returns the czxid of this broker's registration, or -1.

    Every method publishes each image at most once. If a subscriber fails, it has applied only a part of the image. Then
    the method calls `on_fault`, because the node must stop, and raises the subscriber's error.
    """

    def __init__(
        self,
        node_id: int,
        metadata_version: int,
        broker_epoch: Callable[[], int],
        on_fault: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """Creates both images, still empty. `metadata_version` is the level of inter.broker.protocol.version."""
        self._node_id = node_id
        self._on_fault = on_fault
        self._broker_epoch = broker_epoch
        self.roles = MetadataPublisher()
        self.view = MetadataPublisher()
        self.controller_id = NO_LEADER  # as in the last UpdateMetadata
        level = FeatureLevelRecord(name=METADATA_VERSION, feature_level=metadata_version)
        for publisher in (self.roles, self.view):
            self._publish(publisher, lambda edit: edit.set_feature(level, -1))

    # --- roles ---

    def take_roles(self, states: Iterable[PartitionState]) -> None:
        """Sets partitions of this broker exactly as given. A topic that had no id takes the id of its given
        partitions."""
        self._take(self.roles, list(states))

    def take_isrs(self, accepted: Iterable[tuple[tuple[Uuid, int], Any]]) -> None:
        """Writes the ISRs that the controller has accepted, given as topic id, partition and result of an
        AlterPartition. In ZooKeeper mode, no other message informs the leader of its new ISR."""
        image = self.roles.image
        states = []
        for (topic_id, index), told in accepted:
            topic = image.topic_by_id(topic_id)
            known = None if topic is None else image.partition(topic, index)
            if topic is None or known is None:
                continue
            if (told.leader_epoch, told.leader_id) != (known.leader_epoch, known.leader):
                continue  # a LeaderAndIsr will bring a newer role
            if told.partition_epoch > known.partition_epoch:
                state = role_of(TopicKey(topic.name, topic_id), known)
                states.append(
                    state._replace(
                        partition_epoch=told.partition_epoch,
                        isr=told.isr,
                        leader_recovery_state=told.leader_recovery_state,
                    )
                )
        self.take_roles(states)

    def delete_replicas(self, partitions: Iterable[tuple[TopicKey, int]]) -> None:
        """Removes these partitions from this broker, with their logs."""
        doomed: dict[TopicKey, set[int]] = {}
        for key, index in partitions:
            doomed.setdefault(key, set()).add(index)
        image = self.roles.image
        states: list[PartitionState] = []
        gone: list[TopicKey] = []
        for key, indexes in doomed.items():
            topic = image.topic_by_id(key.topic_id)
            if topic is None:
                continue
            here = {i for i, row in enumerate(topic.partition_rows) if row >= 0 and image.replicas(topic, i)}
            if here <= indexes:
                gone.append(key)
                continue
            for index in sorted(here & indexes):
                # The partition stays in the image, without replicas. The replica manager drops the partition.
                row = image.partition(topic, index)
                assert row is not None
                states.append(PartitionState(key, index, NO_LEADER, row.leader_epoch, row.partition_epoch, (), ()))

        def work(edit: Edit) -> None:
            _put(edit, states)
            for key in gone:
                edit.remove_topic(RemoveTopicRecord(topic_id=key.topic_id), -1)

        if states or gone:
            self._publish(self.roles, work)

    # --- the image that clients see ---

    def take_view(
        self,
        states: Sequence[PartitionState],
        deleted: Iterable[tuple[TopicKey, int]],
        brokers: Iterable[LiveBroker],
        controller_id: int,
    ) -> None:
        """Applies an UpdateMetadata: changed partitions, deleted partitions, and all live brokers."""
        gone = list(deleted)
        live = {each.broker_id: each for each in brokers}
        self.controller_id = controller_id

        def work(edit: Edit) -> None:
            _set_brokers(edit, live, self._node_id, self._broker_epoch())
            _put(edit, _with_ids(edit, self.view.image, states))
            _drop(edit, gone)

        self._publish(self.view, work)
        if _brokers_differ(self.roles.image.brokers, self.view.image.brokers):
            self._publish(self.roles, lambda edit: _set_brokers(edit, live, self._node_id, self._broker_epoch()))

    def add_to_view(self, states: Sequence[PartitionState]) -> None:
        """Adds more partitions from the UpdateMetadata that `take_view` has applied."""
        self._take(self.view, states)

    def forget(self, deleted: Collection[TopicKey]) -> None:
        """Removes deleted topics from the view, and ends the roles in their partitions. The logs stay."""
        gone = [key.topic_id for key in deleted if self.view.image.topic_by_id(key.topic_id) is not None]

        def work(edit: Edit) -> None:
            for topic_id in gone:
                edit.remove_topic(RemoveTopicRecord(topic_id=topic_id), -1)

        if gone:
            self._publish(self.view, work)
        roles = self.roles.image
        self.take_roles(
            role_of(key, known, NO_LEADER)
            for key in deleted
            if (topic := roles.topic_by_id(key.topic_id)) is not None
            for index in range(len(topic.partition_rows))
            if (known := roles.partition(topic, index)) is not None and known.leader != NO_LEADER
        )

    def _take(self, publisher: MetadataPublisher, states: Sequence[PartitionState]) -> None:
        if states:
            self._publish(publisher, lambda edit: _put(edit, _with_ids(edit, publisher.image, states)))

    # --- configurations ---

    def set_configs(self, configs: Mapping[ConfigKey, Mapping[str, str]]) -> None:
        """Replaces the settings of these resources in both images."""
        for publisher in (self.roles, self.view):
            records = [
                ConfigRecord(resource_type=kind, resource_name=name, name=key, value=values.get(key))
                for (kind, name), values in configs.items()
                for before in (publisher.image.set_config(kind, name),)
                for key in sorted({*before, *values})
                if before.get(key) != values.get(key)
            ]
            if records:
                self._publish(publisher, lambda edit, records=records: [edit.set_config(each, -1) for each in records])  # type: ignore[misc]

    def _publish(self, publisher: MetadataPublisher, work: Callable[[Edit], object]) -> None:
        base = publisher.image
        edit = Edit(base)
        work(edit)
        try:
            publisher.adopt(edit.freeze(base.offset + 1, 0, -1), edit.delta)
        except Exception as error:
            self._on_fault(error)
            raise


def _put(edit: Edit, states: Sequence[PartitionState]) -> None:
    """Writes the partitions, topic by topic. Adds the topics that do not exist yet."""
    columns = PartitionRecords()
    by_topic: dict[TopicKey, list[PartitionState]] = {}
    for state in states:
        by_topic.setdefault(state.topic, []).append(state)
    first = 0
    runs = []
    for key, each in by_topic.items():
        each.sort(key=_partition_id)
        columns.add_records(each)
        runs.append((key, PartitionRun(key.topic_id, columns, first, len(each))))
        first += len(each)
    for key, run in runs:
        if not edit.has_topic(key.topic_id):
            edit.add_topic(TopicRecord(name=key.name, topic_id=key.topic_id), -1)
        edit.replay(run)


def _partition_id(state: PartitionState) -> int:
    return state.partition_id


def _with_ids(edit: Edit, image: MetadataImage, states: Sequence[PartitionState]) -> Sequence[PartitionState]:
    """Removes each topic whose name now belongs to another topic id. Returns the states that the caller must write.

    If the topic had no id before, it is still the same topic. It keeps its settings, and the returned states include
    its other partitions. Otherwise the topic was deleted and created again, and it keeps nothing.
    """
    renamed = [
        (key, topic)
        for key in dict.fromkeys(state.topic for state in states)
        if (topic := image.topic(key.name)) is not None and topic.topic_id != key.topic_id
    ]
    if not renamed:
        return states
    told = {(state.topic.name, state.partition_id) for state in states}
    written = list(states)
    for key, topic in renamed:
        edit.remove_topic(RemoveTopicRecord(topic_id=topic.topic_id), -1)
        if not is_made(topic.topic_id):
            continue
        for setting, value in image.topic_overrides(key.name).items():
            edit.set_config(ConfigRecord(resource_type=TOPIC, resource_name=key.name, name=setting, value=value), -1)
        written += [
            role_of(key, known)
            for index in range(len(topic.partition_rows))
            if (key.name, index) not in told and (known := image.partition(topic, index)) is not None
        ]
    return written


def _drop(edit: Edit, gone: Iterable[tuple[TopicKey, int]]) -> None:
    by_topic: dict[TopicKey, list[int]] = {}
    for topic, index in gone:
        by_topic.setdefault(topic, []).append(index)
    for key, indexes in by_topic.items():
        known = edit.topic_id_of(key.name)
        if known is not None and (key.topic_id == known or is_made(known)):
            edit.drop_partitions(known, indexes)


def _set_brokers(edit: Edit, live: Mapping[int, LiveBroker], node_id: int, own_epoch: int) -> None:
    for broker_id, known in edit.brokers.items():
        if broker_id not in live:
            edit.unregister_broker(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=known.epoch), -1)
    for broker_id, broker in live.items():
        epoch = own_epoch if broker_id == node_id else NO_BROKER_EPOCH
        before = edit.brokers.get(broker_id)
        if before is None or (before.endpoints, before.rack, before.epoch) != (broker.endpoints, broker.rack, epoch):
            edit.register_broker(_registration(broker, epoch), -1)


def _registration(broker: LiveBroker, epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        broker_epoch=epoch,
        end_points=[RegisterBrokerRecord.BrokerEndpoint(**each._asdict()) for each in broker.endpoints],
        rack=broker.rack,
        fenced=False,
    )


def _brokers_differ(one: Mapping[int, BrokerRegistration], other: Mapping[int, BrokerRegistration]) -> bool:
    def seen(brokers: Mapping[int, BrokerRegistration]) -> dict[int, object]:
        return {key: (each.endpoints, each.rack, each.epoch) for key, each in brokers.items()}

    return seen(one) != seen(other)
