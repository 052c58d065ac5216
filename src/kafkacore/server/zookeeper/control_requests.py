"""The effects of the controller's requests on a broker in ZooKeeper mode: LeaderAndIsr, StopReplica, UpdateMetadata.

The broker rejects outdated requests. A request is outdated if one of three epochs is too low, as in Apache Kafka 3.9
(ReplicaManager, KafkaApis):
- the controller epoch: a deposed controller has sent the request;
- the broker epoch (the czxid of this broker's registration): the request is meant for an earlier registration
  (KIP-380). LeaderAndIsr 0-1, UpdateMetadata 0-4 and StopReplica 0 contain no broker epoch, so this check does not
  apply to them;
- the leader epoch of each partition: the request arrives after a newer one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from kafkacore.config.listeners import SECURITY_PROTOCOLS
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.registrations import Endpoint
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.made_ids import is_made, made_id
from kafkacore.protocol.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kafkacore.protocol.uuid import ZERO, Uuid
from kafkacore.server.zookeeper.roots import (
    LiveBroker,
    PartitionState,
    TopicKey,
    ZooKeeperRoots,
    directories_of_role,
    directories_of_view,
    role_of,
)
from kafkacore.zookeeper.znodes import MAX_PARTITION

LOG: Final = logging.getLogger("kafkacore.server")
UNKNOWN_BROKER_EPOCH: Final = -1  # used for versions without a broker epoch
NO_LEADER: Final = -1
LEADER_DURING_DELETE: Final = -2
NO_LEADER_EPOCH: Final = -1
EPOCH_DURING_DELETE: Final = -2
PARTITIONS_AT_ONCE: Final = 500
T = TypeVar("T")
TOPIC_IDS_SINCE: Final = 5  # since this version, responses to LeaderAndIsr identify topics by id


class IsOffline(Protocol):
    def __call__(self, topic: str, index: int, *, is_new: bool) -> bool: ...


class Stop(NamedTuple):
    """One partition of a StopReplica, in the same form for all versions."""

    topic: str
    partition: int
    leader_epoch: int
    deletes: bool


class Counts:
    """Counts the requests that this broker refused, by the epoch that was stale."""

    def __init__(self) -> None:
        self.stale_controller = 0
        self.stale_broker = 0
        self.stale_leader = 0


class ControlRequests:
    """Executes the controller's requests one at a time, in the order of their arrival. Belongs to the data plane's
    loop.

    `broker_epoch` returns the czxid of this broker's registration. `load_configs` reads the settings of topics before
    this broker opens their first log. `is_offline` says whether the log of a replica is or may be in a failed
    directory. `delete_log` deletes a log that this broker found at its start and that has no role yet. `undeleted`
    waits until the deletions of given logs survive a crash, and returns the logs whose deletion has failed.
    `read_topics` returns the names of the topics in ZooKeeper, or None if they cannot be read. `read_counts` reads the
    numbers of partitions of the coordinators' topics among the given topics, before an image contains these topics.
    """

    def __init__(
        self,
        node_id: int,
        roots: ZooKeeperRoots,
        broker_epoch: Callable[[], int],
        load_configs: Callable[[list[str]], Awaitable[None]],
        is_offline: IsOffline,
        delete_log: Callable[[str, int], None],
        undeleted: Callable[[Collection[tuple[str, int]]], Awaitable[Collection[tuple[str, int]]]],
        read_topics: Callable[[], Awaitable[Collection[str] | None]],
        read_counts: Callable[[Iterable[str]], Awaitable[None]],
        *,
        keeps_epochs: bool = False,
    ) -> None:
        """Creates the object without roles. If `keeps_epochs` is true, it remembers for each partition which controller
        chose the leader; `decided_in` needs that."""
        self._node_id = node_id
        self._roots = roots
        self._broker_epoch = broker_epoch
        self._load_configs = load_configs
        self._is_offline = is_offline
        self._delete_log = delete_log
        self._undeleted = undeleted
        self._read_topics = read_topics
        self._read_counts = read_counts
        self._decided_in: dict[tuple[str, int], int] | None = {} if keeps_epochs else None
        self._turn = asyncio.Lock()
        self._reading: set[asyncio.Future[None]] = set()
        # Set when the controller has reported which topics exist, or the broker has waited long enough for that.
        self.knows_topics = asyncio.Event()
        self.controller_epoch = 0  # the highest controller epoch of any request so far
        self._told_in = (0, UNKNOWN_BROKER_EPOCH)  # the controller epoch and broker epoch of the last UpdateMetadata
        self.counts = Counts()

    # --- fences ---

    def _check(self, request: Any) -> None:
        """Checks the epochs of a request. Raises STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH, INVALID_REQUEST."""
        if request.is_kraft_controller:
            raise error_for(
                ErrorCode.INVALID_REQUEST,
                f"Controller {request.controller_id} is a KRaft controller, and this broker takes part in no migration "
                "from ZooKeeper (KIP-866)",
            )
        own = self._broker_epoch()
        # A larger epoch is not stale: the controller may learn of this broker's registration before this broker does.
        if request.broker_epoch != UNKNOWN_BROKER_EPOCH and request.broker_epoch < own:
            self.counts.stale_broker += 1
            LOG.info(
                "%s of controller %d is for broker epoch %d, an earlier registration of this broker, which has %d",
                request.NAME, request.controller_id, request.broker_epoch, own,
            )  # fmt: skip
            raise error_for(ErrorCode.STALE_BROKER_EPOCH)
        if request.controller_epoch < self.controller_epoch:
            self.counts.stale_controller += 1
            LOG.warning(
                "%s of controller %d has controller epoch %d, but a controller of epoch %d has followed",
                request.NAME, request.controller_id, request.controller_epoch, self.controller_epoch,
            )  # fmt: skip
            raise error_for(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch

    # --- LeaderAndIsr ---

    async def leader_and_isr(self, request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse:
        """Gives this broker's partitions their roles. Raises KafkaError for a stale request or a KRaft controller."""
        async with self._turn:
            self._check(request)
            asked = list(_asked_roles(request))
            unknown = {name for name, _, _ in asked if self._roots.roles.image.topic(name) is None}
            if unknown:
                await self._load_configs(sorted(unknown))
                await self._read_counts(unknown)
                self._check(request)  # this broker may have registered again in the meantime
            without_id = {
                name
                for name in dict.fromkeys(name for name, _, _ in asked)
                if (topic := self._roots.roles.image.topic(name)) is not None and is_made(topic.topic_id)
            }
            errors: list[tuple[str, Uuid, int, int]] = []
            for part in _parts(asked):
                if errors:
                    await asyncio.sleep(0)
                    self._check(request)  # this broker may have registered again in the meantime
                taken: list[PartitionState] = []
                for name, topic_id, told in part:
                    state = self._role(name, topic_id, told, without_id)
                    if isinstance(state, PartitionState):
                        taken.append(state)
                        self._note_epoch(name, told)
                        errors.append((name, topic_id, told.partition_index, ErrorCode.NONE))
                    else:
                        errors.append((name, topic_id, told.partition_index, state))
                self._roots.take_roles(taken)
            return _leader_and_isr_response(errors, version)

    def _role(self, name: str, topic_id: Uuid, told: Any, without_id: Collection[str]) -> PartitionState | ErrorCode:
        """Returns the partition's new state, or the error if the partition keeps its state. Topics in `without_id` had
        no id before this request. Such a topic takes the id in the request, even if the request has a leader epoch that
        this broker already knows."""
        image = self._roots.roles.image
        topic = image.topic(name)
        if topic is not None and topic_id not in (ZERO, topic.topic_id) and not is_made(topic.topic_id):
            LOG.error("%s-%d: LeaderAndIsr has topic id %s, but the log has %s", name, told.partition_index,
                      topic_id, topic.topic_id)  # fmt: skip
            return ErrorCode.INCONSISTENT_TOPIC_ID
        topic_id = _id_of(image, name, topic_id)
        if not 0 <= told.partition_index <= MAX_PARTITION or told.leader < NO_LEADER:
            return ErrorCode.INVALID_REQUEST
        if self._is_offline(name, told.partition_index, is_new=told.is_new):
            return ErrorCode.KAFKA_STORAGE_ERROR
        newest = None if topic is None else image.leader_epoch(topic, told.partition_index)
        gets_id = name in without_id and not is_made(topic_id)
        if newest is not None and (told.leader_epoch < newest or (told.leader_epoch == newest and not gets_id)):
            self.counts.stale_leader += 1
            LOG.info("%s-%d: LeaderAndIsr has leader epoch %d, but this broker already knows %d", name,
                     told.partition_index, told.leader_epoch, newest)  # fmt: skip
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._node_id not in told.replicas:
            LOG.warning("%s-%d: LeaderAndIsr has the replicas %s, but this broker is not one of them", name,
                        told.partition_index, told.replicas)  # fmt: skip
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is not None and told.leader_epoch == newest:
            known = image.partition(topic, told.partition_index)
            if known is not None and known.partition_epoch > told.partition_epoch:
                # The leader has changed the ISR since the controller read the partition's state.
                return role_of(TopicKey(name, topic_id), known)
        return PartitionState(
            TopicKey(name, topic_id), told.partition_index, told.leader, told.leader_epoch, told.partition_epoch,
            told.replicas, told.isr, directories_of_role(told.replicas, is_new=told.is_new),
            told.leader_recovery_state, told.adding_replicas, told.removing_replicas,
        )  # fmt: skip

    def _note_epoch(self, name: str, told: Any) -> None:
        if self._decided_in is not None:
            self._decided_in[name, told.partition_index] = told.controller_epoch

    def decided_in(self, name: str, index: int) -> int:
        """Returns the epoch of the controller that chose the leader of a partition. The partition's state znode
        contains this epoch."""
        return (self._decided_in or {}).get((name, index), self.controller_epoch)

    # --- StopReplica ---

    async def stop_replica(self, request: StopReplicaRequest, version: int) -> StopReplicaResponse:
        """Ends roles of this broker, and deletes replicas. Raises KafkaError for a stale request or a KRaft controller.

        The response to a deletion is sent when a crash no longer brings the log back. Otherwise a later topic of the
        same name could adopt the log, because a topic may have no id on disk.
        """
        errors: list[ErrorCode] = []
        stops = list(_asked_stops(request))
        async with self._turn:
            self._check(request)
            for part in _parts(stops):
                if errors:
                    await asyncio.sleep(0)
                    self._check(request)  # this broker may have registered again in the meantime
                errors += self._stop(part)
        outcome = list(zip(((stop.topic, stop.partition) for stop in stops), stops, errors, strict=True))
        deleted = {key for key, stop, error in outcome if stop.deletes and error == ErrorCode.NONE}
        failed = deleted.intersection(await self._undeleted(deleted))
        made = StopReplicaResponse.StopReplicaPartitionError
        return StopReplicaResponse(
            partition_errors=[
                made(
                    topic_name=stop.topic,
                    partition_index=stop.partition,
                    error_code=ErrorCode.KAFKA_STORAGE_ERROR if key in failed else error,
                )
                for key, stop, error in outcome
            ]
        )

    def _stop(self, stops: Iterable[Stop]) -> list[ErrorCode]:
        """Ends the roles of these partitions, or deletes them. Returns the error of each."""
        image = self._roots.roles.image
        stopped: list[PartitionState] = []
        deleted: list[tuple[TopicKey, int]] = []
        errors: list[ErrorCode] = []
        for stop in stops:
            topic = image.topic(stop.topic)
            known = None if topic is None else image.partition(topic, stop.partition)
            error = ErrorCode.NONE
            if topic is None or known is None or not known.replicas:
                # The topic may have been deleted while this broker was down, so that only the log is left.
                if stop.deletes and self._is_offline(stop.topic, stop.partition, is_new=False):
                    error = ErrorCode.KAFKA_STORAGE_ERROR
                elif stop.deletes:
                    self._delete_log(stop.topic, stop.partition)
            elif self._is_offline(stop.topic, stop.partition, is_new=False):
                error = ErrorCode.KAFKA_STORAGE_ERROR
            elif NO_LEADER_EPOCH < stop.leader_epoch < known.leader_epoch:
                self.counts.stale_leader += 1
                error = ErrorCode.FENCED_LEADER_EPOCH
            elif stop.deletes:
                deleted.append((TopicKey(topic.name, topic.topic_id), stop.partition))
            else:
                # The epochs remain the same, because the next LeaderAndIsr has a newer leader epoch.
                stopped.append(role_of(TopicKey(topic.name, topic.topic_id), known, NO_LEADER))
            errors.append(error)
        self._roots.take_roles(stopped)
        self._roots.delete_replicas(deleted)
        for key, index in deleted:
            if self._decided_in is not None:
                self._decided_in.pop((key.name, index), None)
        return errors

    # --- UpdateMetadata ---

    async def update_metadata(self, request: UpdateMetadataRequest, version: int) -> UpdateMetadataResponse:
        """Applies the metadata that clients see, and ends this broker's roles in partitions that have moved away.
        Raises KafkaError for a stale request or a KRaft controller."""
        async with self._turn:
            self._check(request)
            known = self._roots.view.image
            states: list[PartitionState] = []
            deleted: list[tuple[TopicKey, int]] = []
            for name, told_id, told in _asked_view(request):
                key = TopicKey(name, _id_of(known, name, told_id))
                if told.leader == LEADER_DURING_DELETE:
                    deleted.append((key, told.partition_index))
                elif 0 <= told.partition_index <= MAX_PARTITION:
                    states.append(_seen(key, told))
            fresh = sorted({key.name for key in {state.topic for state in states} if not _is_known(known, key)})
            await self._read_counts(fresh)
            self._check(request)  # this broker may have registered again in the meantime
            first, *others = _parts(states) or [[]]
            self._roots.take_view(first, deleted, map(_live, request.live_brokers), request.controller_id)
            self._roots.take_roles(self._moved_away(first))
            for part in others:
                await asyncio.sleep(0)
                self._check(request)
                self._roots.add_to_view(part)
                self._roots.take_roles(self._moved_away(part))
            if states:
                self.knows_topics.set()
            told_in = self.controller_epoch, self._broker_epoch()
            is_first, self._told_in = told_in != self._told_in, told_in
        # The response does not wait for these reads.
        if fresh:
            # Clients may ask for the configuration of a topic that this broker does not host. A topic with another id
            # may have been deleted and created again, with other settings.
            self._read_soon(self._load_configs(fresh))
        if is_first:
            self._read_soon(self._forget_deleted())
        return UpdateMetadataResponse()

    def _moved_away(self, states: Iterable[PartitionState]) -> Iterator[PartitionState]:
        """Yields the partitions of this broker's image that have moved away according to an UpdateMetadata. The yielded
        states have no leader.

        A controller sends a StopReplica once, and only to a registered broker. So a broker without a session misses the
        request. A broker of Apache Kafka then continues to lead or follow the partition until it restarts. This broker
        gives up the role at once. It keeps the log, as it would after a restart.
        """
        image = self._roots.roles.image
        for state in states:
            topic = image.topic(state.topic.name)
            known = None if topic is None else image.partition(topic, state.partition_id)
            if topic is None or known is None or known.leader == NO_LEADER:
                continue
            ids = topic.topic_id, state.topic.topic_id
            was_created_again = ids[0] != ids[1] and not any(map(is_made, ids))
            if was_created_again or (self._node_id not in state.replicas and state.leader_epoch > known.leader_epoch):
                LOG.info(
                    "%s-%d: this broker gives up its role in leader epoch %d, because %s (epoch %d, replicas %s)",
                    topic.name, known.partition, known.leader_epoch,
                    "the topic was deleted and created again" if was_created_again else "it is not among the replicas",
                    state.leader_epoch, list(state.replicas),
                )  # fmt: skip
                yield role_of(TopicKey(topic.name, topic.topic_id), known, NO_LEADER)

    async def _forget_deleted(self) -> None:
        """Forgets topics that ZooKeeper no longer has. Call this after the first UpdateMetadata that follows a
        registration of this broker or a change of the controller.

        Only one UpdateMetadata says that a topic is deleted. A broker misses this request if the broker has no session
        then, or if the controller fails before it has sent the request. A broker of Apache Kafka then shows the topic
        to clients until it restarts. A topic without an id is kept, because it may have been created again.
        """
        images = self._roots.view.image, self._roots.roles.image
        known = {TopicKey(topic.name, topic.topic_id) for image in images for topic in image.topics()}
        existing = await self._read_topics()
        if existing is not None:
            self._roots.forget([key for key in known if key.name not in existing and not is_made(key.topic_id)])

    def _read_soon(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    def close(self) -> None:
        for task in self._reading:
            task.cancel()


def _parts(items: list[T]) -> list[list[T]]:
    """Splits the partitions of a request into parts. Between two parts the loop does other work, because a request with
    10,000 partitions must not block the loop. The order of partitions does not matter."""
    return [items[first : first + PARTITIONS_AT_ONCE] for first in range(0, len(items), PARTITIONS_AT_ONCE)]


def _id_of(image: MetadataImage, name: str, told: Uuid) -> Uuid:
    """Returns the id of a topic in an image. In releases before 2.8, topics have no ids, but the image needs an id."""
    if told != ZERO:
        return told
    topic = image.topic(name)
    return made_id(name) if topic is None else topic.topic_id


def _is_known(image: MetadataImage, key: TopicKey) -> bool:
    topic = image.topic(key.name)
    return topic is not None and topic.topic_id == key.topic_id


def _seen(key: TopicKey, told: Any) -> PartitionState:
    """Returns the state of a partition of an UpdateMetadata."""
    return PartitionState(
        key, told.partition_index, told.leader, told.leader_epoch, told.zk_version, told.replicas, told.isr,
        directories_of_view(told.replicas, told.offline_replicas),
    )  # fmt: skip


def _asked_roles(request: LeaderAndIsrRequest) -> Iterator[tuple[str, Uuid, Any]]:
    for told in request.ungrouped_partition_states:
        yield told.topic_name, ZERO, told
    for topic in request.topic_states:
        for told in topic.partition_states:
            yield topic.topic_name, topic.topic_id, told


def _asked_view(request: UpdateMetadataRequest) -> Iterator[tuple[str, Uuid, Any]]:
    for told in request.ungrouped_partition_states:
        yield told.topic_name, ZERO, told
    for topic in request.topic_states:
        for told in topic.partition_states:
            yield topic.topic_name, topic.topic_id, told


def _asked_stops(request: StopReplicaRequest) -> Iterator[Stop]:
    for each in request.ungrouped_partitions:
        yield Stop(each.topic_name, each.partition_index, NO_LEADER_EPOCH, request.delete_partitions)
    for named in request.topics:
        for index in named.partition_indexes:
            yield Stop(named.name, index, NO_LEADER_EPOCH, request.delete_partitions)
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield Stop(topic.topic_name, state.partition_index, state.leader_epoch, state.delete_partition)


def _leader_and_isr_response(errors: Iterable[tuple[str, Uuid, int, int]], version: int) -> LeaderAndIsrResponse:
    made = LeaderAndIsrResponse.LeaderAndIsrPartitionError
    if version < TOPIC_IDS_SINCE:
        return LeaderAndIsrResponse(
            partition_errors=[
                made(topic_name=name, partition_index=index, error_code=error) for name, _, index, error in errors
            ]
        )
    topics: dict[Uuid, Any] = {}
    for _, topic_id, index, error in errors:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic_id)
        topic.partition_errors.append(made(partition_index=index, error_code=error))
    return LeaderAndIsrResponse(topics=list(topics.values()))


def _live(broker: Any) -> LiveBroker:
    """Returns a live broker of an UpdateMetadata. Version 0 has one address. Versions below 3 name the listener after
    its security protocol."""
    endpoints = tuple(
        Endpoint(each.listener or _protocol(each.security_protocol), each.host, each.port, each.security_protocol)
        for each in broker.endpoints
    )
    if not endpoints and broker.v0_host:
        endpoints = (Endpoint(SECURITY_PROTOCOLS[0], broker.v0_host, broker.v0_port, 0),)
    return LiveBroker(broker.id, endpoints, broker.rack)


def _protocol(number: int) -> str:
    return SECURITY_PROTOCOLS[number] if 0 <= number < len(SECURITY_PROTOCOLS) else str(number)
