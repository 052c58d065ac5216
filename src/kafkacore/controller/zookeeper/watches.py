"""Maps a watch event of ZooKeeper to the controller's event that reads the change."""

from __future__ import annotations

from typing import Final

from kafkacore.controller.zookeeper import registrations
from kafkacore.controller.zookeeper.events import Event, Notification
from kafkacore.controller.zookeeper.protocols.broker_failure import LogDirEventNotification
from kafkacore.controller.zookeeper.protocols.broker_join import BrokerChange
from kafkacore.controller.zookeeper.protocols.controller_election import ControllerChange, Reelect
from kafkacore.controller.zookeeper.protocols.metadata_updates import BrokerModifications, IsrChangeNotification
from kafkacore.controller.zookeeper.protocols.partition_expansion import PartitionModifications
from kafkacore.controller.zookeeper.protocols.partition_reassignment import IsrOfReassignment, ZkPartitionReassignment
from kafkacore.controller.zookeeper.protocols.preferred_election import ZkPreferredElection
from kafkacore.controller.zookeeper.protocols.topic_creation import TopicChange
from kafkacore.controller.zookeeper.protocols.topic_deletion import TopicDeletion
from kafkacore.zookeeper import paths
from kafkacore.zookeeper.operations import EventType, WatchEvent

_CHILDREN: Final[dict[str, type[Notification]]] = {
    paths.BROKER_IDS: BrokerChange,
    paths.TOPICS: TopicChange,
    paths.DELETE_TOPICS: TopicDeletion,
    paths.ISR_CHANGES: IsrChangeNotification,
    paths.LOG_DIR_EVENTS: LogDirEventNotification,
}
_NODES: Final[dict[str, type[Notification]]] = {
    paths.REASSIGN_PARTITIONS: ZkPartitionReassignment,
    paths.PREFERRED_ELECTION: ZkPreferredElection,
}


def event_of(fired: WatchEvent) -> Event | None:
    """Returns the controller's event. Returns None if the watch belongs to another component, or if another watch also
    reports the change."""
    path, kind = fired.path, fired.type
    if path == paths.CONTROLLER:
        return Reelect() if kind is EventType.DELETED else ControllerChange()
    if path in _CHILDREN:
        # This is right even if the znode itself was created or deleted, because the event reads the znode's children
        # and sets the watch again.
        return _CHILDREN[path]()
    if path in _NODES:
        # This is right even if the znode was deleted, because the event must set the watch again.
        return _NODES[path]()
    parent, name = paths.parent(path), paths.name(path)
    if parent == paths.BROKER_IDS and kind is EventType.DATA_CHANGED:
        return BrokerModifications(registrations.broker_ids([name]))
    if parent == paths.TOPICS and kind is EventType.DATA_CHANGED:
        return PartitionModifications([name])
    if path.startswith(f"{paths.TOPICS}/") and name == "state" and kind is EventType.DATA_CHANGED:
        return IsrOfReassignment([path])
    return None
