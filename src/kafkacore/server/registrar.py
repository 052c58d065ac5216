"""Runs a broker's lifecycle. Sends its messages, waits between them for the delays that the lifecycle returns, and
reports its states.

All of this runs on the controllers' loop. Coordinators and handlers run on the data loop, so they never delay a
heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kafkacore.protocol.errors import ErrorCode, KafkaError, UnsupportedVersionError
from kafkacore.protocol.messages import Message
from kafkacore.protocol.response_errors import error_of_peer
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.loops import LoopThread
from kafkacore.runtime.watched import watch
from kafkacore.server.lifecycle import BrokerLifecycle, BrokerState

LOG: Final = logging.getLogger("kafkacore.server")
# Error codes which mean that the controller does not know this broker.
_UNKNOWN_HERE: Final = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})


class RegistrationRefused(Exception):
    """The controller refuses this broker permanently. The message gives the reason and says what to do."""


# Errors that do not disappear with a retry.
_FINAL: Final = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the controllers belong to another cluster: check log.dirs and the quorum",
    ErrorCode.INVALID_REGISTRATION: (
        "check its listeners, roles and features against those of the cluster, and that no other broker has the "
        "directory.id of one of its log directories: a copy of a directory has the directory.id of the original"
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "this release does not support the cluster's metadata.version or the level of another feature: see the "
        "controller's log for which, and start a release that does; from below 3.9-IV0 raise it with Apache Kafka "
        "first (kafka-features upgrade --release-version 3.9)"
    ),
}
# The session of a crashed broker expires after a while. If the controller still refuses the registration after this
# many session timeouts, another live broker has the id.
_SESSIONS_OF_A_DUPLICATE: Final = 3


class Registrar:
    """Belongs to one event loop. `send` sends a message to the active controller. `applied_offset` returns the offset
    of the last metadata record that this broker has applied."""

    def __init__(
        self,
        lifecycle: BrokerLifecycle,
        send: Callable[[Message], Awaitable[Any]],
        applied_offset: Callable[[], int],
    ) -> None:
        self.lifecycle = lifecycle
        self._send = send
        self._applied_offset = applied_offset
        self._changed = asyncio.Event()  # set when this broker has something to report to the controller
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._duplicate_since: float | None = None
        self._problem = "no controller has answered"
        self._deadlines: list[asyncio.TimerHandle] = []

    def start(self) -> None:
        self.lifecycle.start()
        self._task = asyncio.create_task(self._run())

    def watch(self, on_fault: Callable[[BaseException], None]) -> None:
        """Calls `on_fault` if the broker can no longer talk to its controller, for example after RegistrationRefused.
        Without this, the broker would keep running and stay fenced for ever. Before the first call of `watch`, only
        `reached` raises such an error."""
        assert self._task is not None
        watch(self._task, on_fault)

    def nudge(self) -> None:
        """Sends the next heartbeat now. Call this when there is something to report, or when metadata has been
        applied."""
        self._changed.set()

    async def reached(self, *states: BrokerState, limit_ms: int | None = None) -> None:
        """Waits until the lifecycle is in one of these states. Raises RegistrationRefused, TimeoutError with the last
        problem, and RuntimeError if the broker shuts down first."""
        assert self._task is not None
        try:
            async with asyncio.timeout(None if limit_ms is None else limit_ms / 1000):
                while self.lifecycle.state not in states:
                    if self._task.done():
                        self._task.result()
                        raise RuntimeError(f"broker {self.lifecycle.node_id} leaves")
                    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.append(told)
                    await asyncio.wait({told, self._task}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            raise TimeoutError(self._problem) from None

    def directory_failed(self, directory: Uuid, limit_ms: int, on_fault: Callable[[BaseException], None]) -> None:
        """Reports the failed directory to the controller. Calls `on_fault` if the controller does not accept the report
        within the time limit. Otherwise this broker would remain the leader of partitions that no client can reach."""
        self.lifecycle.log_dir_failed(directory)
        self.nudge()

        def check() -> None:
            if not self.lifecycle.offline_log_dirs[directory]:
                told = f"no controller accepted the report that log directory {directory} has failed"
                on_fault(TimeoutError(f"{told} within log.dir.failure.timeout.ms={limit_ms}"))

        self._deadlines.append(asyncio.get_running_loop().call_later(limit_ms / 1000, check))

    async def stop(self) -> None:
        self.lifecycle.stop()
        for deadline in self._deadlines:
            deadline.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while self.lifecycle.state is not BrokerState.SHUTTING_DOWN:
            self._changed.clear()
            delay_ms = await (self._beat() if self.lifecycle.registered else self._register())
            self._tell()
            await self._pause(delay_ms)

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for told in waiting:
            if not told.done():
                told.set_result(None)

    async def _pause(self, delay_ms: int) -> None:
        """Waits for the delay. Returns early if there is something to report, unless the last message failed."""
        if self.lifecycle.failed_attempts:
            await asyncio.sleep(delay_ms / 1000)
        elif delay_ms > 0:
            try:
                await asyncio.wait_for(self._changed.wait(), delay_ms / 1000)
            except TimeoutError:
                return

    async def _register(self) -> int:
        lifecycle = self.lifecycle
        try:
            answer = await self._send(lifecycle.registration())
        except UnsupportedVersionError as error:
            raise RegistrationRefused(
                f"broker {lifecycle.node_id} cannot register: {error}. Check that the quorum's addresses are those of "
                "controllers, and that their release is 3.9 or later"
            ) from error
        except (KafkaError, OSError) as error:
            problem = str(error) or self._problem
            level = logging.INFO if problem == self._problem else logging.WARNING
            LOG.log(level, "broker %d could not register: %s; it tries again", lifecycle.node_id, problem)
            self._problem = problem
            return lifecycle.failed()
        refused = error_of_peer(answer.error_code)
        if refused in _FINAL:
            raise RegistrationRefused(f"broker {lifecycle.node_id} was refused: {refused.name}, {_FINAL[refused]}")
        self._check_duplicate(refused)
        if refused != ErrorCode.NONE:
            self._problem = f"the controller answered {refused.name}: {refused.message}"
            LOG.info("broker %d is not registered yet: %s", lifecycle.node_id, refused.name)
        return lifecycle.registration_answered(refused, answer.broker_epoch)

    def _check_duplicate(self, refused: ErrorCode) -> None:
        """Raises RegistrationRefused if another node has held the id for longer than the session of a dead node
        lasts."""
        if refused != ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self._duplicate_since = None
            return
        now = asyncio.get_running_loop().time()
        since = self._duplicate_since = now if self._duplicate_since is None else self._duplicate_since
        limit_ms = _SESSIONS_OF_A_DUPLICATE * self.lifecycle.session_timeout_ms
        if now - since >= limit_ms / 1000:
            raise RegistrationRefused(
                f"broker {self.lifecycle.node_id} was refused for {limit_ms} ms: {refused.name}. Another node with "
                "this node.id is running. Stop it, or give each node its own id and its own log directories"
            )

    async def _beat(self) -> int:
        lifecycle = self.lifecycle
        told = list(lifecycle.offline_log_dirs)
        try:
            answer = await self._send(lifecycle.heartbeat(self._applied_offset()))
        except (KafkaError, OSError) as error:
            self._problem = str(error) or self._problem
            LOG.info("a heartbeat of broker %d was lost: %s", lifecycle.node_id, error)
            return lifecycle.failed()
        if answer.error_code in _UNKNOWN_HERE:
            lifecycle.must_register_again()
        return lifecycle.heartbeat_answered(
            answer.error_code, answer.is_caught_up, answer.is_fenced, answer.should_shut_down, told
        )


class Membership:
    """A broker's membership in its cluster, for use on the data plane's loop. `registrar` runs on another loop. Any
    thread can read the state in `lifecycle`."""

    def __init__(self, registrar: Registrar, loop: LoopThread) -> None:
        self.lifecycle = registrar.lifecycle
        self._registrar = registrar
        self._loop = loop
        # The directories of the last call of `cordon`. The lifecycle takes them later, on the other loop.
        self._cordoned = registrar.lifecycle.cordoned_log_dirs

    def start(self) -> None:
        self._loop.call(self._registrar.start)

    def nudge(self) -> None:
        """Does what Registrar.nudge does."""
        self._loop.call(self._registrar.nudge)

    async def reached(self, *states: BrokerState, limit_ms: int | None = None) -> None:
        """Does what Registrar.reached does."""
        await asyncio.wrap_future(self._loop.submit(self._registrar.reached(*states, limit_ms=limit_ms)))

    def unfence(self) -> None:
        """Asks the controller to unfence this broker. Call this when recovery is complete and the listeners are
        open."""
        self._change(self.lifecycle.want_unfenced)

    async def leave(self) -> bool:
        """Starts a controlled shutdown. Returns False if there is nothing to hand over."""

        async def leave() -> bool:
            leaves = self.lifecycle.want_shutdown()
            self._registrar.nudge()
            return leaves

        return await asyncio.wrap_future(self._loop.submit(leave()))

    def cordon(self, directories: frozenset[Uuid] | None) -> None:
        """Sets the cordoned directories. They are None if metadata.version does not support them."""

        def cordon() -> None:
            self.lifecycle.cordoned_log_dirs = directories

        if directories != self._cordoned:
            self._cordoned = directories
            self._change(cordon)

    def directory_failed(self, directory: Uuid, limit_ms: int, on_fault: Callable[[BaseException], None]) -> None:
        """Does what Registrar.directory_failed does, but calls `on_fault` on the data plane's loop."""
        self._loop.call(self._registrar.directory_failed, directory, limit_ms, on_fault)

    def watch(self, on_fault: Callable[[BaseException], None]) -> None:
        """Does what Registrar.watch does, but calls `on_fault` on the data plane's loop."""
        self._loop.call(self._registrar.watch, on_fault)

    async def stop(self) -> None:
        await asyncio.wrap_future(self._loop.submit(self._registrar.stop()))

    def _change(self, change: Callable[[], object]) -> None:
        def changed() -> None:
            change()
            self._registrar.nudge()

        self._loop.call(changed)
