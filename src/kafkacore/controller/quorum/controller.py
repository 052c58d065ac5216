"""The KRaft controller: it turns requests into records, and sends the responses when the records are durable.

Everything runs on one event loop. A root is an image: the metadata after all records up to some offset. The controller
keeps a committed root and an uncommitted root, which also contains records that are not committed yet. A decision reads
the uncommitted root. The controller replays the decision's records to get the next uncommitted root, and appends these
records to the log. It sends the response after their commit.

The controller makes one decision at a time. A long decision is made in slices of a few milliseconds. Between two slices
the loop does other work, but makes no other decision. When the controller stops being active, it drops the uncommitted
root and answers waiting requests with NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias

from kafkacore.config import BrokerConfig
from kafkacore.config.dynamic import adopted
from kafkacore.controller import quorum as on_request
from kafkacore.controller.quorum import activation, cluster
from kafkacore.controller.quorum.counts import Counts
from kafkacore.controller.quorum.decisions import Decision, Settings
from kafkacore.controller.quorum.departures import Departures
from kafkacore.controller.quorum.liveness import Liveness
from kafkacore.controller.quorum.periodic_elections import PeriodicElections
from kafkacore.controller.quorum.turns import Turns
from kafkacore.metadata.delta import MetadataDelta
from kafkacore.metadata.edit import Edit, next_root
from kafkacore.metadata.image import BROKER, EMPTY_IMAGE, MetadataImage
from kafkacore.metadata.partition_records import Records, parted
from kafkacore.metadata.records import RecordWriter, Value, decode_record
from kafkacore.metadata.snapshot import ImageLoad, records_of
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.features import KRAFT_VERSION, METADATA_VERSION, metadata_version
from kafkacore.protocol.messages import NoOpRecord
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.committed import CommittedBatch
from kafkacore.raft.snapshotting import Contents
from kafkacore.runtime.slices import Work, finish, finish_now

LOG: Final = logging.getLogger("kafkacore.controller")

MAX_RECORDS_PER_BATCH: Final = 10_000
HOLDS_PER_SESSION: Final = 4
MAX_WAITING: Final = 10_000  # at most this many responses wait for a commit; further requests get REQUEST_TIMED_OUT


# A Work[Decision] is a decision that is made in slices of a few milliseconds (runtime/slices.py).
Decide: TypeAlias = Callable[[], Decision | Work[Decision]]


class Caller(Protocol):
    """The parts of a request's context that decisions depend on."""

    @property
    def api_version(self) -> int: ...
    @property
    def forwarded(self) -> bool: ...


class Quorum(Protocol):
    """The controller's view of its Raft replica."""

    @property
    def leader_id(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def kraft_version(self) -> int: ...
    def members(self) -> frozenset[int]:
        """Returns the ids of the voters, and of the observers that have fetched from this leader recently."""

    def why_not_dynamic(self) -> str | None:
        """Returns the reason why kraft.version cannot become 1 now, or None if it can."""

    def make_dynamic(self) -> int:
        """Appends the records that raise kraft.version from 0 to 1. The change is complete when the returned offset is
        committed."""

    def leads(self, epoch: int) -> bool:
        """Returns whether this replica is now the leader in `epoch`."""

    def append(self, records: Records, values: Sequence[Value]) -> int | None:
        """Appends one batch as the leader. Returns the offset of its last record, or None if the batch would be too
        large."""


class QuorumController:
    """Must be used on one event loop only. `bootstrap` holds the framed records of bootstrap.checkpoint. `now_ms` is a
    monotonic clock.

    The methods that handle requests raise KafkaError. The error is NOT_CONTROLLER if this node is not the active
    controller, or one of the errors in the docstring of the method.
    """

    def __init__(
        self,
        settings: Settings,
        quorum: Quorum,
        bootstrap: Iterable[bytes],
        now_ms: Callable[[], int],
        new_uuid: Callable[[], Uuid] = Uuid.random,
        on_root: Callable[[MetadataImage, MetadataDelta | None], None] = lambda image, delta: None,
    ) -> None:
        """Creates a controller that is not active. `on_root` receives each committed root and its delta. The delta is
        None if everything may have changed."""
        self._settings = settings
        self._quorum = quorum
        self._bootstrap = [decode_record(value) for value in bootstrap]
        self._now_ms = now_ms
        self._new_uuid = new_uuid
        self._on_root = on_root
        self.image: MetadataImage = EMPTY_IMAGE  # the committed root, which is immutable, so any thread may read it
        self._head: MetadataImage = EMPTY_IMAGE  # the uncommitted root: includes records that are not committed yet
        self._uncommitted: deque[tuple[MetadataImage, MetadataDelta | None]] = deque()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._turns = Turns()
        self._queued = 0
        self._writer: RecordWriter | None = None
        self._active_epoch = -1
        self._liveness = Liveness(settings.config.broker_session_timeout_ms)
        self._departures = Departures()
        self._elections = PeriodicElections(settings.config, now_ms())
        self._last_append_ms = 0
        self.counts = Counts()

    # --- state ---

    @property
    def active(self) -> bool:
        return self._active_epoch >= 0

    @property
    def head_offset(self) -> int:
        """The offset of the last record in the uncommitted root."""
        return self._head.offset

    @property
    def held_heartbeats(self) -> frozenset[int]:
        """The brokers in controlled shutdown whose heartbeats wait until other brokers lead their partitions."""
        return self._departures.held

    def silences(self) -> dict[int, int]:
        """Milliseconds since the last heartbeat of each broker, by broker id. Empty if this controller is not active.
        Can be called on any thread."""
        return self._liveness.silences(self._now_ms()) if self.active else {}

    @property
    def next_tick_ms(self) -> int:
        """Milliseconds until `tick` must be called. It must be called when the next session can expire, when an
        election is due, or when an idle log needs a NoOpRecord."""
        if not self._leads():
            return self._liveness.pulse_ms  # only the active controller expires broker sessions
        now = self._now_ms()
        wait_ms = min(self._liveness.wait_ms(now), max(0, self._elections.next_ms - now))
        idle = self._settings.config.metadata_max_idle_interval_ms
        if idle > 0:
            since_ms = now - self._last_append_ms
            wait_ms = min(wait_ms, max(idle - since_ms, 0) if since_ms < idle else idle)
        return wait_ms

    # --- requests ---

    async def create_topics(self, caller: Caller, request: Any) -> Any:
        """Creates topics. Raises REQUEST_TIMED_OUT, and POLICY_VIOLATION if the request creates too many partitions."""
        return await self._user_write(
            request,
            lambda: on_request.topics.TopicCreation(
                self._head, self._settings, self._new_uuid, self._descriptions
            ).decide(request),
        )

    async def delete_topics(self, caller: Caller, request: Any) -> Any:
        """Deletes topics. Raises TOPIC_DELETION_DISABLED, POLICY_VIOLATION, REQUEST_TIMED_OUT."""
        return await self._user_write(
            request, lambda: on_request.deletion.delete_topics(self._head, self._settings, request, caller.api_version)
        )

    async def create_partitions(self, caller: Caller, request: Any) -> Any:
        """Adds partitions to topics. Raises POLICY_VIOLATION, REQUEST_TIMED_OUT."""
        return await self._user_write(
            request, lambda: on_request.topics.PartitionGrowth(self._head, self._settings).decide(request)
        )

    async def register_broker(self, caller: Caller, request: Any) -> Any:
        """Registers a broker. Raises DUPLICATE_BROKER_REGISTRATION, INVALID_REGISTRATION, UNSUPPORTED_VERSION,
        INCONSISTENT_CLUSTER_ID."""
        return await self._write(
            lambda: cluster.register_broker(
                self._head, self._settings, self._liveness, request, caller.api_version, self._quorum.end_offset,
                self._now_ms(),
            )
        )  # fmt: skip

    async def heartbeat(self, caller: Caller, request: Any) -> Any:
        """Handles a heartbeat. Raises STALE_BROKER_EPOCH. If the broker is in controlled shutdown, the response waits
        until other brokers lead the broker's partitions. The wait is at most a quarter of the session timeout, so that
        the session does not expire meanwhile."""
        # The arrival of a heartbeat extends the session, however long the decision about it takes (KAFKA-15019).
        arrived_ms = self._now_ms()
        self._liveness.heard(request.broker_id, request.broker_epoch, arrived_ms)
        response = await self._heartbeat(request)
        self._departures.release(request.broker_id)
        if self._now_ms() - arrived_ms > self._settings.config.broker_heartbeat_interval_ms // 2:
            self.counts.late_heartbeats += 1
        if request.want_shut_down and not response.should_shut_down:
            response = await self._held(request, response)
        return response

    async def _held(self, request: Any, response: Any) -> Any:
        hold_s = self._liveness.session_timeout_ms / HOLDS_PER_SESSION / 1000
        until_s = asyncio.get_running_loop().time() + hold_s
        while not response.should_shut_down and await self._until_may_leave(request, until_s):
            response = await self._heartbeat(request)
        return response

    async def _until_may_leave(self, request: Any, until_s: float) -> bool:
        """Holds a heartbeat until its broker may leave. Returns False if the wait ends earlier. Raises NOT_CONTROLLER,
        and STALE_BROKER_EPOCH if the broker is registered again in the meantime."""
        self._check_sender(request)  # the broker may have registered again during the last commit
        may_leave = self._may_leave(request.broker_id) or await self._departures.hold(request.broker_id, until_s)
        self._check_sender(request)
        return may_leave

    def _check_sender(self, request: Any) -> None:
        self._require_active()
        cluster.check_epoch(self._head, request.broker_id, request.broker_epoch)

    def _may_leave(self, broker_id: int) -> bool:
        broker = self._head.brokers.get(broker_id)
        if broker is None or not broker.in_controlled_shutdown:
            return False
        return cluster.may_leave(self._head, self._liveness, broker)

    async def _heartbeat(self, request: Any) -> Any:
        while True:
            self._require_active()
            decision = cluster.heartbeat(self._head, self._settings, self._liveness, request)
            self._departures.wake(self._may_leave)
            settled = self._head.brokers.get(request.broker_id) is self.image.brokers.get(request.broker_id)
            if not decision.records and settled:
                return decision.response
            if not self._turns.taken:
                break
            async with self._turns:
                pass  # waits until the long decision has ended, then decides again on its root
        offset = self._append(decision)
        broker = self._head.brokers.get(request.broker_id)
        if broker is not None and broker.in_controlled_shutdown:
            self._liveness.leaves_after(broker.broker_id, offset)
        await self._until_committed(offset)
        return decision.response

    async def unregister_broker(self, caller: Caller, request: Any) -> Any:
        """Removes a broker. Raises BROKER_ID_NOT_REGISTERED."""
        return await self._write(lambda: cluster.unregister_broker(self._head, self._settings, request))

    async def register_controller(self, caller: Caller, request: Any) -> Any:
        return await self._write(lambda: cluster.register_controller(self._head, request))

    async def allocate_producer_ids(self, caller: Caller, request: Any) -> Any:
        """Allocates a block of producer ids. Raises STALE_BROKER_EPOCH."""
        return await self._write(lambda: on_request.producer_ids.allocate(self._head, request))

    async def alter_partition(self, caller: Caller, request: Any) -> Any:
        """Changes ISRs. Raises STALE_BROKER_EPOCH."""
        return await self._write(
            lambda: on_request.alter_partition.IsrChange(self._head, self._settings, caller.api_version).decide(request)
        )

    async def assign_replicas_to_dirs(self, caller: Caller, request: Any) -> Any:
        """Stores the log directories of replicas. Raises STALE_BROKER_EPOCH."""
        return await self._write(lambda: on_request.directories.assign(self._head, self._settings, request))

    async def alter_configs(self, caller: Caller, request: Any) -> Any:
        """Replaces the settings of resources. Raises POLICY_VIOLATION."""
        return await self._write(
            lambda: on_request.configuration.ConfigAlteration(
                self._head, self._settings, forwarded=caller.forwarded
            ).legacy(request)
        )

    async def incremental_alter_configs(self, caller: Caller, request: Any) -> Any:
        """Changes settings of resources. Raises POLICY_VIOLATION."""
        return await self._write(
            lambda: on_request.configuration.ConfigAlteration(
                self._head, self._settings, forwarded=caller.forwarded
            ).incremental(request)
        )

    async def alter_client_quotas(self, caller: Caller, request: Any) -> Any:
        """Changes quotas. Raises POLICY_VIOLATION."""
        return await self._write(lambda: on_request.quotas.alter_client_quotas(self._head, request))

    async def alter_user_scram_credentials(self, caller: Caller, request: Any) -> Any:
        """Changes SCRAM users. Raises POLICY_VIOLATION."""
        return await self._write(lambda: on_request.scram_users.alter_users(self._head, request))

    async def elect_leaders(self, caller: Caller, request: Any) -> Any:
        """Holds elections. Raises INVALID_REQUEST, POLICY_VIOLATION, REQUEST_TIMED_OUT."""
        return await self._user_write(
            request, lambda: on_request.elections.LeaderElection(self._head, self._settings).decide(request)
        )

    async def alter_partition_reassignments(self, caller: Caller, request: Any) -> Any:
        """Starts and cancels reassignments. Raises POLICY_VIOLATION, REQUEST_TIMED_OUT."""
        return await self._user_write(
            request, lambda: on_request.reassignments.Reassignment(self._head, self._settings).decide(request)
        )

    async def list_partition_reassignments(self, caller: Caller, request: Any) -> Any:
        self._require_active()
        return await finish(on_request.reassignments.list_reassignments(self.image, request))

    async def update_features(self, caller: Caller, request: Any) -> Any:
        """Changes feature levels. Raises REQUEST_TIMED_OUT."""
        quorum = self._quorum

        def decide() -> Work[Decision]:
            decision = yield from on_request.features.update_features(
                self._head, self._settings, request, caller.api_version, quorum
            )
            # As in `features.update_features`, the last of several updates of a feature counts.
            levels = {each.feature: each.max_version_level for each in request.feature_updates}
            raised = levels.get(KRAFT_VERSION, 0) > 0
            if raised and not quorum.kraft_version and not decision.response.error_code and not request.validate_only:
                return decision._replace(after=quorum.make_dynamic())
            return decision

        return await self._user_write(request, decide)

    # --- the log ---

    def on_batch(self, batch: CommittedBatch) -> None:
        """Handles a committed batch. If this controller wrote the batch, the root with its records already exists and
        becomes the committed root. A batch of another leader is applied to the committed root."""
        uncommitted = self._uncommitted
        if not uncommitted:
            offsets = batch.base_offset, batch.last_offset
            self._head, delta = next_root(self.image, batch.records, offsets, batch.epoch, batch.timestamp_ms)
            self._commit(self._head, delta)
        elif uncommitted[0][0].offset == batch.last_offset:
            root, delta = uncommitted.popleft()
            # The root was made before the log appended the batch and set its timestamp.
            root = root._replace(timestamp_ms=batch.timestamp_ms)
            if not uncommitted:
                self._head = root
            self._commit(root, delta)
        waiting = self._waiting
        while waiting and waiting[0][0] <= batch.last_offset:
            _, future = waiting.popleft()
            if not future.done():
                future.set_result(None)

    def begin_snapshot(self, offset: int, epoch: int, timestamp_ms: int) -> ImageLoad:
        """Starts to load a snapshot, which replaces all earlier metadata. `offset` is the offset of the last log record
        that the snapshot includes."""
        return ImageLoad(offset, epoch, timestamp_ms, self._snapshot_loaded)

    def _snapshot_loaded(self, image: MetadataImage) -> None:
        self._head = image
        self._commit(image, None)

    def on_leading(self, epoch: int) -> None:
        """Makes this controller active. Called when this replica has become the leader, after all records of earlier
        epochs were committed and applied."""
        self._active_epoch = epoch
        self._head = self.image
        self._liveness = Liveness(self._settings.config.broker_session_timeout_ms)
        now = self._now_ms()
        for broker in self._head.brokers.values():
            if not broker.fenced:
                self._liveness.registered(broker.broker_id, broker.epoch, now)
            if broker.in_controlled_shutdown:
                # The other brokers may not yet have read which partitions they lead now.
                self._liveness.leaves_after(broker.broker_id, self._head.offset)
        self._elections = PeriodicElections(self._settings.config, now)
        self._last_append_ms = now
        records = activation.activation_records(self._head, self._settings, self._bootstrap)
        if records:
            self._append(Decision(records, None))
        LOG.info("controller %d is active in epoch %d", self._settings.config.node_id, epoch)

    def on_following(self, epoch: int) -> None:
        """Makes this controller inactive. Called when this replica does not lead, or no longer leads."""
        if self._active_epoch < 0:
            return
        LOG.info("controller %d has not been active since epoch %d began", self._settings.config.node_id, epoch)
        self._active_epoch = -1
        self._uncommitted.clear()
        self._head = self.image
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(self._not_controller())
        self._departures.end(self._not_controller())

    # --- time ---

    def tick(self) -> None:
        """Fences brokers whose session has expired, holds elections that are due, and writes a NoOpRecord to an idle
        log."""
        if not self._leads() or self._turns.taken:
            return  # during a decision `tick` stays due, and is called again afterwards
        now = self._now_ms()
        self._fence(self._liveness.expired(now))
        if now >= self._elections.next_ms:
            self._append(Decision(self._elections.due(self._head, self._settings, now), None, atomic=False))
        idle = self._settings.config.metadata_max_idle_interval_ms
        if idle > 0 and now - self._last_append_ms >= idle and METADATA_VERSION in self._head.features:
            self._append(Decision([NoOpRecord()], None))

    def _fence(self, expired: Sequence[tuple[int, int]]) -> None:
        try:
            self._sessions_expired(expired)
        except Exception:
            if len(expired) == 1:
                told = "broker %d sends no heartbeats and could not be fenced; the next tick retries"
                LOG.exception(told, expired[0][0])
                return
            # Fencing all brokers at once has failed. Fence them one by one, so that an error about one broker does not
            # affect the others.
            for each in expired:
                self._fence([each])

    def _sessions_expired(self, expired: Sequence[tuple[int, int]]) -> None:
        """Fences all these brokers in one decision."""
        brokers = []
        for broker_id, epoch in expired:
            broker = self._head.brokers.get(broker_id)
            if broker is not None and broker.epoch == epoch and not broker.fenced:
                session_ms = self._liveness.session_timeout_ms
                LOG.warning(
                    "broker %d at epoch %d sent no heartbeat for %d ms and is fenced", broker_id, epoch, session_ms
                )
                brokers.append(broker)
        if brokers:
            self._append(Decision(cluster.fence(self._head, self._settings, *brokers), None, atomic=False))
        # The sessions end only after the append. So if an error leaves a broker unfenced, the next tick tries again.
        for broker_id, _ in expired:
            self._liveness.gone(broker_id)

    # --- snapshots ---

    def snapshot(self) -> Contents | None:
        """Returns the contents of the next snapshot: the committed root, without the records of an open metadata
        transaction. Returns None while the committed root has no metadata.version, because the bootstrap records are
        not committed yet or their transaction is still open."""
        image = self.image if self.image.transaction is None else self.image.transaction.before
        if METADATA_VERSION not in image.features:
            return None
        writer = RecordWriter(image.metadata_version)
        return Contents(image.offset, image.epoch, image.timestamp_ms, map(writer.encode, records_of(image)))

    # --- internals ---

    @cached_property
    def _descriptions(self) -> on_request.topics.TopicDescriptions:
        return on_request.topics.TopicDescriptions(self._settings.config)

    def _commit(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        before, self.image = self.image, image
        if delta is None or (delta.configs and any(kind == BROKER for kind, _ in delta.configs)):
            self._adopt_config(image)
        self._on_root(image, delta)
        if delta is not None and delta.most_rows:
            self.counts.leaders_changed(before, image, delta)

    def _adopt_config(self, image: MetadataImage) -> None:
        """Applies the dynamic settings of this node and the cluster-wide defaults, as if server.properties contained
        them (KIP-226)."""
        config = self._settings.config
        default, own = image.set_config(BROKER, ""), image.set_config(BROKER, str(config.node_id))
        if default or own or config.dynamic_default or config.dynamic_broker:
            # If a broker runs in the same process, that broker logs the changes.
            config = adopted(config, default, own, tell="broker" not in config.process_roles)
            self._settings = self._settings._replace(config=config)
            self.__dict__.pop("_descriptions", None)

    @property
    def config(self) -> BrokerConfig:
        """The configuration, including changes made at run time."""
        return self._settings.config

    async def _user_write(self, request: Any, decide: Decide) -> Any:
        try:
            async with asyncio.timeout(max(0, request.timeout_ms) / 1000):
                return await self._write(decide)
        except TimeoutError:
            self.counts.timed_out += 1
            raise error_for(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the change was not committed within {request.timeout_ms} ms, but may be committed later",
            ) from None

    async def _write(self, decide: Decide) -> Any:
        self._require_active()
        if len(self._waiting) + self._queued >= MAX_WAITING:
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, f"{MAX_WAITING} decisions already wait for their commit")
        self._queued += 1
        try:
            async with self._turns:
                offset, response = await self._decide(decide)
        finally:
            self._queued -= 1
        await self._until_committed(offset)
        return response

    async def _decide(self, decide: Decide) -> tuple[int, Any]:
        """Makes a decision and appends its records. Returns the offset that must be committed before the response is
        sent, and the response. Most decisions take only one iteration of the event loop."""
        self._require_active()
        epoch, began_ms = self._active_epoch, self._now_ms()
        self.counts.started += 1
        made = decide()
        decision = made if isinstance(made, Decision) else await finish(made)
        if self._active_epoch != epoch:
            raise self._not_controller()
        # A decision without records waits too, because its response may depend on earlier decisions that are not
        # committed yet.
        offset = await finish(self._appending(decision))
        self.counts.computing_ms.record(self._now_ms() - began_ms)
        return max(offset, decision.after), decision.response

    async def _until_committed(self, offset: int) -> None:
        if offset > self.image.offset:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((offset, future))
            await future

    def _append(self, decision: Decision) -> int:
        """Appends the records of a decision. Runs in the same iteration of the event loop as the decision."""
        return finish_now(self._appending(decision))

    def _appending(self, decision: Decision) -> Work[int]:
        """Replays and appends records. Returns the offset that must be committed before the response is sent."""
        records = decision.records
        for part in (records,) if decision.atomic else parted(records, MAX_RECORDS_PER_BATCH):
            if part:
                yield from self._append_batch(part)
        return self._head.offset

    def _append_batch(self, records: Records) -> Work[None]:
        epoch, base = self._active_epoch, -1
        while base != self._quorum.end_offset:
            # Some records contain their own offsets. So if the quorum has appended a control record in the meantime,
            # the loop replays the records again at their new offsets.
            base = self._quorum.end_offset
            # The records are replayed before they are appended, so that a record that cannot be applied never reaches
            # the log.
            edit = Edit(self._head, decided_here=True)
            yield from edit.replaying(records, base)
            writer = self._writer_for(edit)
            values = yield from writer.encoding(records)
            if self._active_epoch != epoch:
                raise self._not_controller()
        last = self._quorum.append(records, values)
        if last is None:
            raise error_for(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        now = self._now_ms()
        self._last_append_ms = now
        self._head = edit.freeze(last, self._active_epoch, self._head.timestamp_ms)
        self._uncommitted.append((self._head, None if edit.aborted else edit.delta))
        for broker_id in edit.delta.brokers:
            broker = self._head.brokers.get(broker_id)
            if broker is None or broker.fenced:
                self._liveness.gone(broker_id)
            if broker is not None:
                self._liveness.registered(broker_id, broker.epoch, now, broker.in_controlled_shutdown)
        if edit.delta.brokers:
            self._departures.wake(self._may_leave)

    def _writer_for(self, edit: Edit) -> RecordWriter:
        level = edit.features[METADATA_VERSION]
        if self._writer is None or self._writer.metadata_version.level != level:
            self._writer = RecordWriter(metadata_version(level))
        return self._writer

    def _leads(self) -> bool:
        # The replica may already have lost the leadership: `on_following` is called one iteration of the event loop
        # later.
        return self.active and self._quorum.leads(self._active_epoch)

    def _require_active(self) -> None:
        if not self._leads():
            raise self._not_controller()

    def _not_controller(self) -> Exception:
        leader = self._quorum.leader_id
        known = (
            f"the active controller appears to be node {leader}"
            if leader >= 0
            else "no controller appears to be active"
        )
        return error_for(ErrorCode.NOT_CONTROLLER, f"node {self._settings.config.node_id} is not active: {known}")
