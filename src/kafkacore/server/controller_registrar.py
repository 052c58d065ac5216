"""Keeps this controller registered in the metadata (KIP-919), as Apache Kafka's ControllerRegistrationManager does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Final

from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.registrations import ControllerRegistration
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.features import METADATA_VERSION
from kafkacore.protocol.messages import Message
from kafkacore.runtime.randomness import backoff_ms
from kafkacore.runtime.watched import watch

LOG: Final = logging.getLogger("kafkacore.server")
FIRST_RETRY_MS: Final = 100
LAST_RETRY_MS: Final = 120_000
LEAST_LEVEL: Final = 15  # metadata.version 3.7-IV0, the first level with RegisterControllerRecord


class ControllerRegistrar:
    """Registers one incarnation of a controller whenever the metadata does not contain its registration: at the start,
    when metadata.version rises to a level with registrations, and after the registration was removed or replaced by
    another incarnation's registration. Belongs to the loop that publishes the metadata.

    `request` is the ControllerRegistrationRequest of this incarnation, and `send` sends it to the active controller.
    """

    def __init__(self, request: Any, send: Callable[[Message], Awaitable[Any]], random: Random) -> None:
        self.node_id: int = request.controller_id
        self._request, self._send, self._random = request, send, random
        self._image = MetadataImage()
        self._registration: ControllerRegistration | None = None
        self._features: Mapping[str, int] = {}
        self._on_fault: Callable[[BaseException], None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._failures = 0

    @property
    def is_registered(self) -> bool:
        """Returns whether the metadata contains this incarnation."""
        known = self._registration
        return known is not None and known.incarnation_id == self._request.incarnation_id

    def start(self, on_fault: Callable[[BaseException], None]) -> None:
        """Keeps the controller registered from now on. Calls `on_fault` with an error that no retry can correct."""
        self._on_fault = on_fault
        self._register()

    def stop(self) -> None:
        self._on_fault = None
        if self._retry is not None:
            self._retry.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def published(self, image: MetadataImage) -> None:
        """Handles new committed metadata."""
        self._image = image
        was_registered = self.is_registered
        before, self._registration = self._registration, image.controllers.get(self.node_id)
        old_features, self._features = self._features, image.features
        if self._registration is before and self._features == old_features:
            return
        # A starting controller replays the registrations of its earlier incarnations, and logs nothing about them.
        if was_registered and self._registration is None:
            LOG.info("the registration of controller %d was removed", self.node_id)
        elif was_registered and self._registration is not None and not self.is_registered:
            other = self._registration.incarnation_id
            LOG.info("controller %d is registered as %s, not as this process", self.node_id, other)
        self._register()

    def _register(self) -> None:
        """Sends the request, unless that is not necessary, or not possible now."""
        is_supported = self._features.get(METADATA_VERSION, 0) >= LEAST_LEVEL
        if self.is_registered or not is_supported or self._on_fault is None or self._asking is not None:
            return
        if self._retry is not None:
            self._retry.cancel()
        self._asking = asyncio.get_running_loop().create_task(self._ask())
        watch(self._asking, self._on_fault)

    async def _ask(self) -> None:
        try:
            answer = await self._send(self._request)
        except (KafkaError, OSError, TimeoutError) as error:
            problem = str(error) or "no controller is active"
        else:
            if not answer.error_code:
                self._failures = 0
                self._asking = None
                return
            if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
                self._image.check_features()  # a cluster with unsupported levels will never accept this node
            problem = f"error {answer.error_code}"
        LOG.info("controller %d is not registered yet: %s", self.node_id, problem)
        self._asking = None
        delay_ms = backoff_ms(self._random, self._failures, FIRST_RETRY_MS, LAST_RETRY_MS)
        self._failures += 1
        self._retry = asyncio.get_running_loop().call_later(delay_ms / 1000, self._register)
