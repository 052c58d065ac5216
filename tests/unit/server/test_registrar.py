"""The requests of a broker to its controller. The broker sends them in order, and repeats them after failures. Callers
can wait for the broker's states."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from kafkacore.protocol.errors import ErrorCode, UnsupportedVersionError
from kafkacore.protocol.messages import BrokerHeartbeatResponse, BrokerRegistrationRequest, BrokerRegistrationResponse
from kafkacore.protocol.uuid import Uuid
from kafkacore.server.lifecycle import AdvertisedListener, BrokerLifecycle, BrokerState
from kafkacore.server.registrar import Membership, Registrar, RegistrationRefused


class Channel:
    """A stub of the connection. It first returns the given errors, and after that grants every request."""

    def __init__(self, *errors: Any) -> None:
        self.errors = list(errors)
        self.heard: list[Any] = []

    async def send(self, request: Any) -> Any:
        self.heard.append(request)
        if self.errors:
            error = self.errors.pop(0)
            if isinstance(error, Exception):
                raise error
            return BrokerRegistrationResponse(error_code=error)
        if isinstance(request, BrokerRegistrationRequest):
            return BrokerRegistrationResponse(broker_epoch=5)
        return BrokerHeartbeatResponse(
            is_caught_up=True, is_fenced=request.want_fence, should_shut_down=request.want_shut_down
        )

    async def forward(self, call: Any, request: Any) -> Any:
        raise AssertionError("a broker's own requests are not forwarded")


def registrar(channel: Any, session_timeout_ms: int = 90_000) -> Registrar:
    lifecycle = BrokerLifecycle(
        node_id=1,
        cluster_id="c",
        incarnation_id=Uuid(b"i" * 16),
        rack=None,
        listeners=[AdvertisedListener("PLAINTEXT", "h", 9092)],
        log_dir_ids=[Uuid(b"d" * 16)],
        features={},
        heartbeat_interval_ms=60_000,
        session_timeout_ms=session_timeout_ms,
    )
    return Registrar(lifecycle, channel.send, lambda: 9)


class HeldLoop:
    """A stub of another thread's loop. It runs the calls when the test says so."""

    def __init__(self) -> None:
        self.held: list[Callable[[], object]] = []

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        self.held.append(lambda: function(*arguments))

    def run(self) -> None:
        held, self.held = self.held, []
        for call in held:
            call()


def test_broker_registers_catches_up_runs_and_leaves() -> None:
    async def story() -> None:
        channel = Channel()
        made = registrar(channel)
        made.start()
        await asyncio.wait_for(made.reached(BrokerState.RECOVERY), 10)
        made.lifecycle.want_unfenced()
        made.nudge()
        await asyncio.wait_for(made.reached(BrokerState.RUNNING), 10)
        assert made.lifecycle.want_shutdown()
        made.nudge()
        await asyncio.wait_for(made.reached(BrokerState.SHUTTING_DOWN), 10)
        assert [type(request).__name__ for request in channel.heard] == [
            "BrokerRegistrationRequest",
            *["BrokerHeartbeatRequest"] * 3,
        ]
        assert channel.heard[1].current_metadata_offset == 9
        await made.stop()

    asyncio.run(story())


def test_registration_is_sent_again_when_it_is_lost() -> None:
    async def story() -> None:
        channel = Channel(TimeoutError(), ErrorCode.NOT_CONTROLLER)
        made = registrar(channel)
        made.start()
        await asyncio.wait_for(made.reached(BrokerState.RECOVERY), 10)
        assert [type(request).__name__ for request in channel.heard[:3]] == ["BrokerRegistrationRequest"] * 3
        await made.stop()

    asyncio.run(story())


def test_final_refusal_is_raised_to_the_waiter() -> None:
    async def story() -> None:
        made = registrar(Channel(ErrorCode.INCONSISTENT_CLUSTER_ID))
        made.start()
        with pytest.raises(RegistrationRefused, match="another cluster"):
            await asyncio.wait_for(made.reached(BrokerState.RUNNING), 10)
        await made.stop()

    asyncio.run(story())


def test_registration_that_the_controllers_release_does_not_know_is_final() -> None:
    async def story() -> None:
        made = registrar(Channel(UnsupportedVersionError("h:9093 does not serve BROKER_REGISTRATION")))
        made.start()
        with pytest.raises(RegistrationRefused, match=r"h:9093 does not serve .* Check that the quorum's addresses"):
            await asyncio.wait_for(made.reached(BrokerState.RUNNING), 10)
        await made.stop()

    asyncio.run(story())


def watched(*errors: Any) -> BaseException:
    """Returns the fault that a running broker reports if the controller answers its next requests with `errors`."""

    async def story() -> BaseException:
        channel = Channel()
        made = registrar(channel)
        made.start()
        made.lifecycle.want_unfenced()
        await asyncio.wait_for(made.reached(BrokerState.RUNNING), 10)
        fault: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        made.watch(fault.set_result)
        channel.errors += errors
        made.lifecycle.must_register_again()
        made.nudge()
        return await asyncio.wait_for(fault, 10)

    return asyncio.run(story())


def test_final_refusal_of_a_running_broker_is_a_fault() -> None:
    fault = watched(ErrorCode.INVALID_REGISTRATION)
    assert isinstance(fault, RegistrationRefused)
    assert "check its listeners" in str(fault) and "directory.id" in str(fault)


def test_unexpected_error_of_a_running_broker_is_a_fault() -> None:
    assert str(watched(ValueError("broken"))) == "broken"


def test_error_code_that_no_release_knows_is_a_failed_registration() -> None:
    async def story() -> None:
        channel = Channel(9999)
        made = registrar(channel)
        made.start()
        await asyncio.wait_for(made.reached(BrokerState.RECOVERY), 10)
        assert [type(request).__name__ for request in channel.heard[:2]] == ["BrokerRegistrationRequest"] * 2
        await made.stop()

    asyncio.run(story())


def test_broker_whose_id_a_living_node_has_is_refused_after_three_sessions() -> None:
    async def story() -> None:
        made = registrar(Channel(*[ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 1000), session_timeout_ms=60)
        made.start()
        began = asyncio.get_running_loop().time()
        with pytest.raises(RegistrationRefused, match=r"Another node with this node.id is running"):
            await asyncio.wait_for(made.reached(BrokerState.RUNNING), 10)
        assert asyncio.get_running_loop().time() - began >= 0.18
        await made.stop()

    asyncio.run(story())


def test_broker_registers_when_the_session_of_its_last_incarnation_is_over() -> None:
    async def story() -> None:
        channel = Channel(*[ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 2)
        made = registrar(channel, session_timeout_ms=60_000)
        made.start()
        await asyncio.wait_for(made.reached(BrokerState.RECOVERY), 10)
        await made.stop()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (ErrorCode.NOT_CONTROLLER, "NOT_CONTROLLER"),
        (OSError("h:9093 cannot be reached"), "h:9093 cannot be reached"),
        (ErrorCode.DUPLICATE_BROKER_REGISTRATION, "DUPLICATE_BROKER_REGISTRATION"),
    ],
)
def test_timeout_names_the_last_problem_when_the_broker_is_not_admitted(problem: Any, told: str) -> None:
    async def story() -> None:
        made = registrar(Channel(*[problem] * 1000))
        made.start()
        with pytest.raises(TimeoutError, match=told):
            await made.reached(BrokerState.RECOVERY, limit_ms=50)
        await made.stop()

    asyncio.run(story())


def test_each_problem_is_warned_of_once_while_a_broker_cannot_register(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        made = registrar(Channel(*[OSError("no controller is active")] * 3, *[OSError("h:9093 is full")] * 3))
        made.start()
        await asyncio.wait_for(made.reached(BrokerState.RECOVERY), 10)
        await made.stop()

    asyncio.run(story())
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [
        "broker 1 could not register: no controller is active; it tries again",
        "broker 1 could not register: h:9093 is full; it tries again",
    ]


def test_broker_fails_when_no_controller_hears_of_its_failed_directory() -> None:
    async def story() -> None:
        channel = Channel()
        made = registrar(channel)
        made.start()
        made.lifecycle.want_unfenced()
        await asyncio.wait_for(made.reached(BrokerState.RUNNING), 10)
        faults: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        directory = Uuid(b"d" * 16)
        channel.errors += [OSError("no controller")] * 1000
        made.directory_failed(directory, 50, faults.set_result)
        assert str(directory) in str(await asyncio.wait_for(faults, 10))
        await made.stop()

    asyncio.run(story())


def test_orderly_stop_is_no_fault() -> None:
    async def story() -> None:
        made = registrar(Channel())
        made.start()
        await asyncio.wait_for(made.reached(BrokerState.RECOVERY), 10)
        faults: list[BaseException] = []
        made.watch(faults.append)
        await made.stop()
        assert faults == []

    asyncio.run(story())


@pytest.mark.parametrize("before", [None, frozenset()])
def test_directory_is_not_cordoned_when_its_cordon_ends_before_the_other_loop_runs(
    before: frozenset[Uuid] | None,
) -> None:
    made, loop = registrar(Channel()), HeldLoop()
    membership = Membership(made, cast("Any", loop))
    membership.cordon(before)
    loop.run()
    membership.cordon(frozenset([Uuid(b"d" * 16)]))
    membership.cordon(before)
    loop.run()
    assert made.lifecycle.cordoned_log_dirs == before
    membership.cordon(before)
    assert loop.held == []
