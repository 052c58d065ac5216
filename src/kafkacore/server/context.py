"""The parts of a broker that its handlers can use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import cached_property
from typing import TYPE_CHECKING

from kafkacore._fast.hot.fetch_session import FetchSessionCache
from kafkacore.config import BrokerConfig, TopicConfig
from kafkacore.metadata.answers import PartitionAnswers, WholeAnswers
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.registrations import Endpoint
from kafkacore.protocol.apis import ApiRange
from kafkacore.protocol.features import KRAFT_VERSION
from kafkacore.replication.log_dir_moves import LogDirMoves
from kafkacore.replication.replica_manager import ReplicaManager
from kafkacore.runtime.scheduler import Scheduler
from kafkacore.server.auto_topics import AutoTopics
from kafkacore.server.broker_logs import BrokerLogs
from kafkacore.server.channel import ControllerChannel
from kafkacore.server.features import supported_features
from kafkacore.server.partition_waits import PartitionWaits
from kafkacore.server.producer_ids import ProducerIds

if TYPE_CHECKING:
    from kafkacore.server.groups import Groups
    from kafkacore.server.metadata_view import MetadataView
    from kafkacore.server.transactions import Transactions
    from kafkacore.server.zookeeper.parts import ZooKeeperParts


class BrokerContext:
    """The parts of a broker for its handlers. Belongs to the data plane's loop. `read_image` returns the image
    of the committed metadata. `blocking` runs work that may have to wait for a disk."""

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        read_image: Callable[[], MetadataImage],
        replicas: ReplicaManager,
        logs: BrokerLogs,
        channel: ControllerChannel,
        producer_ids: ProducerIds,
        auto_topics: AutoTopics,
        waits: PartitionWaits,
        timers: Scheduler,
        fetch_sessions: FetchSessionCache,
        blocking: Executor,
        make_groups: Callable[[], Groups],
        make_transactions: Callable[[], Transactions],
        read_kraft_version: Callable[[], int],
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.read_image = read_image
        self.replicas = replicas
        self.logs = logs
        self.channel = channel
        self.producer_ids = producer_ids
        self.auto_topics = auto_topics
        self.waits = waits
        self.timers = timers  # these timers follow the environment's clock, which a test may move
        self.fetch_sessions = fetch_sessions
        self.blocking = blocking
        self._make_groups = make_groups
        self._make_transactions = make_transactions
        self._read_kraft_version = read_kraft_version
        self.partition_answers: dict[tuple[str, int], PartitionAnswers] = {}  # by listener and version
        self.api_ranges: Sequence[ApiRange] = ()
        self.transactions_refused = False  # whether the broker has already logged that it serves no transactions
        self.values_in_effect: Mapping[str, str] = {}
        self.moves: LogDirMoves
        # Called after a client has changed the level of a logger.
        self.loggers_changed: Callable[[], None] = lambda: None
        # Returns the number of partitions of a coordinators' topic, or None if the topic does not exist.
        self.count_partitions: Callable[[str], int | None] = self._count_in_image
        # Returns the id of the active controller, or -1. Only in ZooKeeper mode.
        self.zookeeper_controller: Callable[[], int] | None = None
        self.zookeeper: ZooKeeperParts
        # The offset at which the finalized features last changed. In ZooKeeper mode, the version of `/feature`.
        self.finalized_epoch = -1

    def _count_in_image(self, name: str) -> int | None:
        topic = self.image.topic(name)
        return None if topic is None else len(topic.partition_rows)

    @cached_property
    def whole_answers(self) -> WholeAnswers:

        return WholeAnswers()

    @cached_property
    def groups(self) -> Groups:
        return self._make_groups()

    @cached_property
    def transactions(self) -> Transactions:
        return self._make_transactions()

    @property
    def transactions_made(self) -> Transactions | None:
        """The transactions, or None until a request needs them."""
        return self.__dict__.get("transactions")

    @property
    def groups_made(self) -> Groups | None:
        """The groups, or None until a request needs them."""
        return self.__dict__.get("groups")

    @property
    def image(self) -> MetadataImage:
        return self.read_image()

    @property
    def config(self) -> BrokerConfig:
        """The configuration, including changes made at run time."""
        return self.replicas.config

    def endpoint_of(self, broker_id: int, listener: str) -> Endpoint | None:
        """Returns the address of a broker on a listener, from the committed metadata."""
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.endpoint(listener)

    def controller_seen(self, view: MetadataView) -> int:
        """Returns the id of the node that clients are to use as the controller. In KRaft mode that is any live broker,
        which forwards their requests (KIP-590)."""
        if self.zookeeper_controller is None:
            return view.any_alive_broker(self.node_id)
        controller_id = self.zookeeper_controller()
        return controller_id if view.alive_endpoint(controller_id) is not None else -1

    def topic_overrides(self, name: str) -> Mapping[str, str] | None:
        image = self.image
        return None if image.topic(name) is None else image.topic_overrides(name)

    def topic_config(self, name: str) -> TopicConfig:
        return TopicConfig(self.config, self.image.topic_overrides(name))

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        return supported_features() if self.zookeeper_controller is None else {}

    @property
    def finalized_features(self) -> Mapping[str, int]:
        if self.zookeeper_controller is not None:
            return self.zookeeper.finalized_features
        return {**self.image.features, KRAFT_VERSION: self._read_kraft_version()}
