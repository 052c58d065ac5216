"""Drives a broker's lifecycle: sends its messages, waits as long as it asks for, and reports the states that it
reaches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.response_errors import error_of_peer
from kafkacore.runtime.watched import watch
from kafkacore.server.channel import ControllerChannel
from kafkacore.server.lifecycle import BrokerLifecycle, BrokerState

LOG: Final = logging.getLogger("kafkacore.server")
# Errors that mean that the controller does not know this broker.
_UNKNOWN_HERE: Final = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})


class RegistrationRefused(Exception):
    """The controller refuses this broker for good; the message says why and what to do."""


# Errors that asking again does not cure.
_FINAL: Final = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the controllers are of another cluster: check log.dirs and the quorum",
    ErrorCode.INVALID_REGISTRATION: "check its listeners, roles and features against those of the cluster",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster's metadata.version or features are not supported by this release; from "
    "below 3.9-IV0 raise it with Apache Kafka first (kafka-features upgrade --release-version 3.9)",
}


class Registrar:
    """Belongs to the data plane's loop. `applied_offset` returns the last metadata record that this broker has
    applied."""

    def __init__(
        self, lifecycle: BrokerLifecycle, channel: ControllerChannel, applied_offset: Callable[[], int]
    ) -> None:
        self.lifecycle = lifecycle
        self._channel = channel
        self._applied_offset = applied_offset
        self._changed = asyncio.Event()  # set when this broker has something new to say
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.lifecycle.start()
        self._task = asyncio.create_task(self._run())

    def watch(self, on_fault: Callable[[BaseException], None]) -> None:
        """Reports from now on when the broker can no longer talk to its controller, for example after
        RegistrationRefused: otherwise it would serve on, fenced for ever. Before this call, `reached` raises that
        error."""
        assert self._task is not None
        watch(self._task, on_fault)

    def nudge(self) -> None:
        """Does not wait for the next heartbeat: there is something new to say, or metadata has been applied."""
        self._changed.set()

    async def reached(self, *states: BrokerState) -> None:
        """Waits until the lifecycle is in one of the states. Raises RegistrationRefused, and RuntimeError when the
        broker leaves before."""
        assert self._task is not None
        while self.lifecycle.state not in states:
            if self._task.done():
                self._task.result()
                raise RuntimeError(f"broker {self.lifecycle.node_id} leaves")
            told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(told)
            await asyncio.wait({told, self._task}, return_when=asyncio.FIRST_COMPLETED)

    async def stop(self) -> None:
        self.lifecycle.stop()
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
        """Waits for the delay, or less when there is something new to say, unless the last message failed."""
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
            answer = await self._channel.send(lifecycle.registration())
        except (KafkaError, OSError, TimeoutError) as error:
            LOG.info("broker %d could not register: %s", lifecycle.node_id, error)
            return lifecycle.failed()
        refused = error_of_peer(answer.error_code)
        if refused in _FINAL:
            raise RegistrationRefused(f"broker {lifecycle.node_id} was refused: {refused.name}, {_FINAL[refused]}")
        if refused != ErrorCode.NONE:
            LOG.info("broker %d is not registered yet: %s", lifecycle.node_id, refused.name)
        return lifecycle.registration_answered(refused, answer.broker_epoch)

    async def _beat(self) -> int:
        lifecycle = self.lifecycle
        told = list(lifecycle.offline_log_dirs)
        try:
            answer = await self._channel.send(lifecycle.heartbeat(self._applied_offset()))
        except (KafkaError, OSError, TimeoutError) as error:
            LOG.info("a heartbeat of broker %d was lost: %s", lifecycle.node_id, error)
            return lifecycle.failed()
        if answer.error_code in _UNKNOWN_HERE:
            lifecycle.must_register_again()
        return lifecycle.heartbeat_answered(
            answer.error_code, answer.is_caught_up, answer.is_fenced, answer.should_shut_down, told
        )
