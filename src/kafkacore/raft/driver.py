"""Runs a Raft core on an asyncio loop: serves the core's timers, disk and connections, and the listeners that apply
committed records.

All appends in one iteration of the event loop share one sync. The loop also answers brokers' heartbeats, so it must
never wait for the disk. When a sync is done, a file descriptor wakes the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, Final, Protocol

from kafkacore._fast.record.batch import Batch
from kafkacore.protocol.errors import ErrorCode, KafkaError, UnsupportedVersionError, error_for
from kafkacore.protocol.messages import Message
from kafkacore.raft import messages, snapshots
from kafkacore.raft.committed import Listener
from kafkacore.raft.control import Value
from kafkacore.raft.core import Answer, Raft, RaftConfig, Send
from kafkacore.raft.delivery import Delivery
from kafkacore.raft.effects import Change, Work
from kafkacore.raft.log import OffsetAndEpoch, RaftLog
from kafkacore.raft.measures import Measures
from kafkacore.raft.roles import Leader
from kafkacore.raft.voter_log import voters_of
from kafkacore.runtime import open_files
from kafkacore.storage.quorum_state import QuorumState

LOG: Final = logging.getLogger("kafkacore.raft")

MAX_PENDING_REQUESTS: Final = 20_000


class Network(Protocol):
    """Sends requests to other replicas. Raises OSError, TimeoutError or KafkaError if no response arrives. Raises
    MalformedAnswerError, a subclass of OSError, for a malformed response."""

    async def send(self, host: str, port: int, request: Message) -> Message: ...


class SyncedLog(RaftLog, Protocol):
    def begin_sync(self) -> int | None:
        """Starts to write all earlier appends to the disk. Returns a file descriptor that becomes readable when the
        write is complete, or None if there is nothing to write. Every call returns the same descriptor. Raises OSError.
        """

    def end_sync(self) -> bool:
        """Returns whether the sync that `begin_sync` started is done. Raises OSError if the sync failed."""

    def flush(self) -> None:
        """Writes all earlier appends to the disk. Blocks, so it is called on another thread. Raises OSError."""


class RaftDriver:
    """Must be used only on the loop on which it is started. `persist` writes a quorum state in the given version of the
    file's format. It blocks, so the driver calls it on another thread. `decode` returns the records of a batch.
    `now_ms` is a monotonic clock, and `wall_ms` is the time of day. The driver calls `on_fault` with an error that is
    fatal for this node."""

    def __init__(
        self,
        config: RaftConfig,
        log: SyncedLog,
        state: QuorumState | None,
        *,
        decode: Callable[[Batch], Sequence[Any]],
        persist: Callable[[QuorumState, int], None],
        network: Network | None,
        executor: Executor,
        random: Any,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._config, self._log, self._state = config, log, state
        self._persist, self._network, self._executor = persist, network, executor
        self._random, self._now_ms, self._wall_ms, self._on_fault = random, now_ms, wall_ms, on_fault
        self._delivery = Delivery(log, decode, self._blocking, self._spawn, self._schedule)
        self._changing = asyncio.Lock()  # allows only one change of the log at a time
        self._pending: dict[int, asyncio.Future[Message]] = {}
        self._tokens = 0
        self._told_epoch: tuple[int, bool] = (-1, False)
        self._leader_watchers: list[Callable[[], None]] = []
        self._told_leader: tuple[str, int] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._persisting = self._scheduled = False
        self._syncing: tuple[int, int] | None = None
        self._sync_bell: int | None = None  # the file descriptor that becomes readable when a sync ends
        self._download: OffsetAndEpoch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._stopped = False
        self._note_due_ms = now_ms() + config.checkpoint_interval_ms
        self.measures = Measures(now_ms())
        self.raft: Raft
        self._loop: asyncio.AbstractEventLoop

    # --- start and stop ---

    def add_listener(self, listener: Listener) -> None:
        """Adds a listener. Call this before `start`."""
        self._delivery.listeners.append(listener)

    def watch_leader(self, moved: Callable[[], None]) -> None:
        """Registers `moved`, which is called whenever `leader_elsewhere` has changed. Call this before `start`."""
        self._leader_watchers.append(moved)

    async def start(self) -> None:
        """Starts the replica. Call this on the loop. The listeners have the latest snapshot when this returns. If this
        replica is the only voter, it leads as soon as its vote is on disk. Raises SnapshotError, OSError.
        """
        self._loop = asyncio.get_running_loop()
        voters = await self._blocking(voters_of, self._log, self._config.voters)
        ids = self._log.snapshots()
        if ids and ids[-1].offset > 0:
            self.measures.loaded_snapshots += 1
            await self._delivery.load(ids[-1])
        self.raft = Raft(self._config, self._log, self._state, self._random, self._now_ms(), self._wall_ms, voters)
        if self._config.can_vote and not self.raft.is_voter:
            LOG.warning("%s", self.raft.voters.latest.why_not(self.raft.me))
        self._schedule()

    async def stop(self) -> None:
        """Resigns if this replica leads, syncs the log, and answers waiting requests with BROKER_NOT_AVAILABLE."""
        if not self.started:
            return  # the start failed because a file of the log is damaged, so there is nothing more to stop
        self.raft.resign()
        self._pump()
        # EndQuorumEpoch requests may still wait for a disk or a socket. They only speed up the next election, so the
        # stop waits for them only briefly.
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._config.retry_backoff_ms * 10 / 1000)
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._sync_bell is not None:
            self._loop.remove_reader(self._sync_bell)
        for task in self._tasks:
            task.cancel()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(error_for(ErrorCode.BROKER_NOT_AVAILABLE))
        await self._blocking(self._log.flush)
        await self._note_committed(self._log.end_offset)

    # --- requests ---

    @property
    def started(self) -> bool:
        return "raft" in self.__dict__

    @property
    def leader_id(self) -> int:
        return self.raft.leader_id

    def leads(self, epoch: int) -> bool:
        return self.raft.is_leader and self.raft.epoch == epoch

    @property
    def epoch(self) -> int:
        return self.raft.epoch

    @property
    def end_offset(self) -> int:
        """The offset at which the next append begins."""
        return self.raft.end_offset

    @property
    def high_watermark(self) -> int:
        return self.raft.high_watermark

    @property
    def kraft_version(self) -> int:
        return self.raft.voters.kraft_version

    async def request(self, request: Message) -> Message:
        """Answers a Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot or DescribeQuorum. Returns when the
        response is known."""
        if len(self._pending) >= MAX_PENDING_REQUESTS:
            raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many requests wait for the metadata log")
        self._tokens += 1
        token = self._tokens
        future = self._pending[token] = self._loop.create_future()
        try:
            self.raft.request(token, request, self._now_ms())
            # For most requests this produces the response immediately.
            self._pump()
            answered: Message = await future
            return answered
        finally:
            del self._pending[token]

    def append(self, records: Sequence[Any], values: Sequence[Value]) -> int | None:
        """Appends one batch of records with their encoded values. Returns the offset of the last record, or None if the
        batch is too large. Raises NOT_CONTROLLER if this replica does not lead, and UNKNOWN_SERVER_ERROR if the disk
        fails."""
        if not self.raft.is_leader:
            raise error_for(ErrorCode.NOT_CONTROLLER)
        base = self.raft.end_offset
        try:
            last = self.raft.append(values)
        except OSError as error:
            self._fail(error)  # this stops the node: a leader that cannot write must not remain the leader
            # Apache Kafka's controller returns the same error.
            raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        if last is not None:
            self._delivery.keep(base, records)
            self.measures.appended(last + 1 - base, last, self._now_ms())
            self._schedule()
        return last

    def members(self) -> frozenset[int]:
        """Returns the ids of the voters, and of the observers that have fetched from this leader recently."""
        return self.raft.replication.members()

    def why_not_dynamic(self) -> str | None:
        """Returns the reason why kraft.version cannot become 1 now, or None if it can."""
        return self.raft.why_not_dynamic()

    def make_dynamic(self) -> int:
        """Raises kraft.version from 0 to 1. The change takes effect when the offset that this method returns is
        committed.
        """
        try:
            last = self.raft.make_dynamic()
        except OSError as error:
            self._fail(error)
            raise
        self._schedule()
        return last

    @property
    def leader_elsewhere(self) -> tuple[str, int] | None:
        """The address of the leader if another node is the leader, else None. A replica that was just elected returns
        None although its own controller is not active yet. Callers must then wait instead of sending controller
        requests over the network."""
        return None if self.raft.is_leader else self.raft.leader_endpoint

    # --- snapshots ---

    async def write_snapshot(
        self, snapshot_id: OffsetAndEpoch, values: Iterator[bytes], last_timestamp_ms: int
    ) -> None:
        """Makes and writes a snapshot, part by part, on a thread that can block. Does nothing if this snapshot already
        exists."""
        if snapshot_id in self._log.snapshots():
            return
        position = 0
        voters = self.raft.voters.below(snapshot_id.offset)
        parts = snapshots.snapshot_parts(snapshot_id, values, voters, last_timestamp_ms, self._wall_ms())
        try:
            while (part := await self._blocking(next, parts, None)) is not None:
                await self._blocking(self._log.write_snapshot, snapshot_id, position, part)
                position += len(part)
            await self.change_log(lambda: self._log.finish_snapshot(snapshot_id))
        except Exception:
            await self._abandon_snapshot(snapshot_id)
            raise
        self.measures.wrote_snapshot(position, self._now_ms())
        await self._note_committed(self.raft.durable_offset)
        LOG.info("snapshot at offset %d, epoch %d: %d bytes", *snapshot_id, position)

    async def _abandon_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Removes the parts of a snapshot that will not be finished. Otherwise they would fill the disk, and the log
        needs the space."""
        try:
            await self.change_log(lambda: self._log.abandon_snapshot(snapshot_id))
        except OSError as error:
            LOG.warning("unfinished snapshot %d-%d was not removed: %s; the next start removes it", *snapshot_id, error)

    async def change_log(self, change: Callable[[], Any]) -> Any:
        """Runs a change of the log or of its snapshots on a thread that can block. If another change is running, first
        waits for its end."""
        async with self._changing:
            return await self._blocking(change)

    async def _note_committed(self, synced_offset: int) -> None:
        """Stores the committed offset (the mark, see `commit_mark`). So at its next start, the node can distinguish
        damage to committed records from an incomplete batch that a crash leaves at the end of the log.
        """
        offset = min(self.raft.high_watermark, synced_offset)
        if offset > self._log.committed_offset:
            try:
                await self.change_log(lambda: self._log.note_committed(offset))
            except OSError as error:
                LOG.warning("the mark of committed records was not written: %s; the older mark stays", error)

    def _blocking(self, work: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        return self._loop.run_in_executor(self._executor, work, *arguments)

    # --- turns ---

    def _schedule(self) -> None:
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        if self._stopped:
            return
        try:
            self._turn()
        except Exception as error:  # noqa: BLE001 - any error ends the node
            self._fail(error)

    def _turn(self) -> None:
        raft = self.raft
        if raft.next_tick_ms <= self._now_ms():
            raft.tick(self._now_ms())
        for output in raft.take_outputs():
            if isinstance(output, Answer):
                future = self._pending.get(output.token)
                if future is not None and not future.done():
                    future.set_result(output.response)
            else:
                self._spawn(self._exchange(output))
        if not self._persisting:
            state = raft.take_state()
            if state is not None:
                self._persisting = True
                self._spawn(self._write_state(state))
        if self._syncing is None or raft.is_moot(self._syncing):
            sync = raft.take_sync()
            if sync is not None:
                self._begin_sync(sync)
        self._follow_download()
        for work in raft.take_work():
            self._spawn(self._do(work))
        loaded = raft.take_loaded_snapshot()
        if loaded is not None:
            self.measures.loaded_snapshots += 1
            self._delivery.begin_snapshot(loaded)
        self._deliver()
        if self._note_due_ms <= self._now_ms():
            self._note_due_ms = self._now_ms() + self._config.checkpoint_interval_ms
            self._spawn(self._note_committed(raft.durable_offset))
        self._tell_leadership()
        self.measures.turned(raft.role, raft.epoch, raft.leader_id, raft.high_watermark, self._now_ms())
        where = self.leader_elsewhere
        if where != self._told_leader:
            self._told_leader = where
            for moved in self._leader_watchers:
                moved()
        self._set_timer()

    def _deliver(self) -> None:
        """Delivers committed batches. A change of the log also changes the batches in memory, on another thread. So the
        delivery waits for the end of the change, which causes another turn."""
        if not self.raft.is_changing_log:
            self._delivery.turn(self.raft.high_watermark)

    def _follow_download(self) -> None:
        """Removes the parts of a download that has ended. After a complete download, no parts are left."""
        if not self.raft.is_changing_log and self._download != self.raft.download:
            if self._download is not None:
                self._spawn(self._abandon_snapshot(self._download))
            self._download = self.raft.download

    def _set_timer(self) -> None:
        """Sets the timer for the next tick. Most deadlines are postponed before they are reached, so a timer that is
        already set for an earlier time is kept.
        """
        due_ms = self.raft.next_tick_ms
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        now_ms = self._now_ms()
        # The timer runs for a day at most. If the deadline is later, the driver then sets the timer again.
        self._timer_ms = min(max(due_ms, now_ms), now_ms + 86_400_000)
        self._timer = self._loop.call_later((self._timer_ms - now_ms) / 1000, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._schedule()

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._fail(task.exception())

    def _fail(self, error: BaseException | None) -> None:
        if not self._stopped and error is not None:
            self._stopped = True
            self._on_fault(error)

    async def _write_state(self, state: tuple[int, QuorumState]) -> None:
        version = 1 if self.raft.voters.kraft_version else 0
        await self._blocking(open_files.finish, self._persist, state[1], version)
        self._persisting = False
        self.raft.persisted(state[0], self._now_ms())
        self._schedule()

    async def _do(self, work: Work) -> None:
        effect = work.effect
        if isinstance(effect, Change):
            result = await self.change_log(lambda: effect.perform(self._log))
        else:
            result = await self._blocking(effect.perform, self._log)
        self.raft.done(work.number, result, self._now_ms())
        self._pump()

    def _begin_sync(self, sync: tuple[int, int]) -> None:
        bell = self._log.begin_sync()
        if bell is None:
            self.raft.durable(sync, self._now_ms())
            self._schedule()
            return
        self._syncing = sync  # This can replace a sync that a truncation has made useless.
        if bell != self._sync_bell:
            self._sync_bell = bell
            self._loop.add_reader(bell, self._end_sync)

    def _end_sync(self) -> None:
        try:
            if self._syncing is None or not self._log.end_sync():
                return
            sync, self._syncing = self._syncing, None
            self.raft.durable(sync, self._now_ms())
        except Exception as error:  # noqa: BLE001 - any error ends the node
            self._fail(error)
            return
        # Handle the sync immediately, because a client waits for the commit.
        self._pump()

    async def _exchange(self, send: Send) -> None:
        response: Message | None = None
        if self._network is not None:
            try:
                async with asyncio.timeout(self._config.request_timeout_ms / 1000):
                    response = await self._network.send(send.to.host, send.to.port, send.request)
            except UnsupportedVersionError:
                # A release before KIP-996 does not support pre-votes. The core decides how to count this response.
                response = messages.refused(send.request, ErrorCode.UNSUPPORTED_VERSION)
            except (OSError, TimeoutError, KafkaError) as error:
                LOG.debug("no answer from %s:%d: %s", send.to.host, send.to.port, error)
        end = self._log.end_offset
        self.raft.response(send.correlation, response, self._now_ms())
        if send.request.NAME == "FetchRequest" and self._log.end_offset > end:
            self.measures.fetched(self._log.end_offset - end, self._now_ms())
        self._schedule()

    # --- leadership ---

    def _tell_leadership(self) -> None:
        role = self.raft.role
        if isinstance(role, Leader):
            if self._delivery.offset > role.epoch_start_offset and self._told_epoch != (self.raft.epoch, True):
                self._told_epoch = (self.raft.epoch, True)
                for listener in self._delivery.listeners:
                    listener.on_leading(self.raft.epoch)
        elif self._told_epoch != (self.raft.epoch, False):
            self._told_epoch = (self.raft.epoch, False)
            self._delivery.forget()
            for listener in self._delivery.listeners:
                listener.on_following(self.raft.epoch)
