"""A controller registers whenever the metadata does not contain its present incarnation, as Apache Kafka's
ControllerRegistrationManager does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.records import MetadataError
from kafkacore.metadata.registrations import ControllerRegistration
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ControllerRegistrationRequest, ControllerRegistrationResponse
from kafkacore.protocol.uuid import Uuid
from kafkacore.server import controller_registrar
from kafkacore.server.controller_registrar import ControllerRegistrar

OWN, OTHER = Uuid(b"i" * 16), Uuid(b"j" * 16)
MV_3_6, MV_3_7, MV_3_9 = 14, 15, 21


class Controllers:
    """A stub of the active controller. It answers with the given errors first, and after that accepts each request. It
    answers nothing while `is_open` is not set."""

    def __init__(self, *errors: Any) -> None:
        self.errors = list(errors)
        self.heard = 0
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.accepts = asyncio.Event()  # is set when a request has no error in its answer
        self.faults: list[BaseException] = []
        request = ControllerRegistrationRequest(controller_id=3, incarnation_id=OWN)
        self.registrar = ControllerRegistrar(request, self.send, Random(1))

    async def send(self, request: Any) -> Any:
        assert request.incarnation_id == OWN
        self.heard += 1
        error = self.errors.pop(0) if self.errors else 0
        if not error:
            self.accepts.set()
        await self.is_open.wait()
        if isinstance(error, Exception):
            raise error
        return ControllerRegistrationResponse(error_code=error)

    def start(self) -> None:
        self.registrar.start(self.faults.append)

    async def publish(self, level: int | None, incarnation: Uuid | None = None) -> int:
        """Publishes metadata. Returns the number of requests that the registrar has sent since its start, after it has
        had time to react."""
        features = {} if level is None else {"metadata.version": level}
        known = {} if incarnation is None else {3: ControllerRegistration(3, incarnation, (), {})}
        self.registrar.published(MetadataImage(features=features, controllers=known))
        return await self.sent()

    async def sent(self) -> int:
        for _ in range(10):
            await asyncio.sleep(0)
        return self.heard


def told(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 30))


def test_controller_registers_once_when_its_registration_is_in_the_metadata() -> None:
    async def story() -> None:
        controllers = Controllers()
        controllers.start()
        assert await controllers.publish(MV_3_9) == 1
        assert await controllers.publish(MV_3_9, OWN) == 1
        assert controllers.registrar.is_registered
        assert await controllers.publish(MV_3_9 + 1, OWN) == 1

    told(story)


def test_controller_registers_at_its_start_when_an_earlier_incarnation_is_registered() -> None:
    async def story() -> None:
        controllers = Controllers()
        assert await controllers.publish(MV_3_9, OTHER) == 0
        controllers.start()
        assert await controllers.sent() == 1

    told(story)


def test_controller_waits_when_metadata_version_is_unknown_or_too_low_and_registers_when_it_rises() -> None:
    async def story() -> None:
        controllers = Controllers()
        controllers.start()
        assert await controllers.publish(None) == 0
        assert await controllers.publish(MV_3_6) == 0
        assert await controllers.publish(MV_3_7) == 1

    told(story)


@pytest.mark.parametrize("seen", [OTHER, None], ids=["another incarnation", "no registration"])
def test_controller_registers_again_when_the_metadata_loses_its_registration(seen: Uuid | None) -> None:
    async def story() -> None:
        controllers = Controllers()
        controllers.start()
        await controllers.publish(MV_3_9)
        await controllers.publish(MV_3_9, OWN)
        assert await controllers.publish(MV_3_9, seen) == 2
        assert await controllers.publish(MV_3_9, OWN) == 2

    told(story)


def test_controller_reports_another_incarnation_only_when_it_was_registered_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kafkacore.server")

    async def story() -> None:
        controllers = Controllers()
        controllers.start()
        for earlier in (OTHER, None, Uuid(b"k" * 16)):
            await controllers.publish(MV_3_9, earlier)
        await controllers.publish(MV_3_9, OWN)
        assert caplog.messages == []
        await controllers.publish(MV_3_9, OTHER)
        assert caplog.messages == [f"controller 3 is registered as {OTHER}, not as this process"]

    told(story)


def test_controller_sends_one_request_at_a_time() -> None:
    async def story() -> None:
        controllers = Controllers()
        controllers.is_open.clear()
        controllers.start()
        assert await controllers.publish(MV_3_9) == 1
        assert await controllers.publish(MV_3_9, OTHER) == 1
        controllers.is_open.set()
        assert await controllers.sent() == 1
        assert await controllers.publish(MV_3_9) == 2

    told(story)


@pytest.mark.parametrize("error", [ErrorCode.NOT_CONTROLLER, TimeoutError(), OSError("gone")])
def test_controller_tries_again_later_each_time_when_a_request_fails(
    error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def backoff_ms(source: Random, attempt: int, base_ms: float, max_ms: float) -> float:
        attempts.append(attempt)
        return 1.0

    monkeypatch.setattr(controller_registrar, "backoff_ms", backoff_ms)

    async def story() -> None:
        controllers = Controllers(error, error)
        controllers.start()
        await controllers.publish(MV_3_9)
        await controllers.accepts.wait()
        assert attempts == [0, 1]
        assert await controllers.sent() == 3

    told(story)


def test_controller_ends_when_the_cluster_has_a_level_that_it_does_not_support() -> None:
    async def story() -> None:
        controllers = Controllers(ErrorCode.UNSUPPORTED_VERSION)
        controllers.start()
        await controllers.publish(1_000)
        assert [type(fault) for fault in controllers.faults] == [MetadataError]

    told(story)


def test_controller_sends_nothing_when_it_has_stopped() -> None:
    async def story() -> None:
        controllers = Controllers(ErrorCode.NOT_CONTROLLER)
        controllers.start()
        await controllers.publish(MV_3_9)
        controllers.registrar.stop()
        assert await controllers.publish(MV_3_9, OTHER) == 1

    told(story)
