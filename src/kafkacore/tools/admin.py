"""Connects commands to a live cluster. Defines the options for the cluster's address, sends requests, and returns the
responses.

A command connects to brokers or controllers of the cluster (KIP-919). If only the controller can decide about a
request, a broker forwards the request to the active controller. A broker in ZooKeeper mode refuses such a request. In
this case, and if the command connects to controllers, the command finds the active controller and sends the request to
it."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from kafkacore.config.addresses import Address, AddressError, parse_address
from kafkacore.network.client import NodeClient
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, KafkaError, ProtocolError, UnsupportedVersionError, error_for
from kafkacore.protocol.response_errors import error_of_peer

CLIENT_ID: Final = "kafkacore-tool"
LIMIT_S: Final = 30
RETRY_S: Final = 0.1
BROKERS: Final = 1
CONTROLLERS: Final = 2
# For each kind of node: the option that takes the addresses of such nodes, the name of the kind, and the name of the
# other kind.
_KINDS: Final = {
    BROKERS: ("--bootstrap-server", "broker", "controller"),
    CONTROLLERS: ("--bootstrap-controller", "controller", "broker"),
}
_LOOK_AGAIN: Final = {
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_CONTROLLER_ID,
}

T = TypeVar("T")


class AdminError(Exception):
    """A command failed. The message is one line for the user."""


def add_endpoints(parser: argparse.ArgumentParser, *short: str) -> None:
    """Adds the options for the cluster's address. `short` contains their short forms."""
    brokers, controllers = short or ("", "")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument(
        *filter(None, ("--bootstrap-server", brokers)), metavar="HOST:PORT,...", help="brokers of the cluster"
    )
    group.add_argument(
        *filter(None, ("--bootstrap-controller", controllers)),
        metavar="HOST:PORT,...",
        help="controllers of the cluster; the command finds the active one",
    )


def run_admin(arguments: argparse.Namespace, story: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
    """Connects to the cluster that the arguments name, runs the coroutine `story` with an admin client of this cluster,
    and returns the coroutine's result. Raises AdminError."""
    brokers = getattr(arguments, "bootstrap_server", None)
    kind = CONTROLLERS if brokers is None else BROKERS
    bootstrap = bootstrap_addresses(arguments.bootstrap_controller if brokers is None else brokers, kind)

    async def whole() -> T:
        admin = Admin(bootstrap, kind)
        try:
            return await story(admin)
        finally:
            await admin.close()

    return asyncio.run(whole())


def bootstrap_addresses(text: str, kind: int) -> list[Address]:
    """Returns the addresses in `host:port,host:port`, the value of the option for this kind of nodes. Raises
    AdminError."""
    try:
        return [parse_address(entry.strip()) for entry in text.split(",")]
    except AddressError as error:
        raise AdminError(f"{_KINDS[kind][0]}: {error}") from None


class Admin:
    """A connection to one cluster. `kind` is BROKERS or CONTROLLERS, the endpoint types of KIP-919."""

    def __init__(self, bootstrap: list[Address], kind: int) -> None:
        self.kind = kind
        self._bootstrap = bootstrap
        self._where = ", ".join(map(str, bootstrap))
        self._clients: dict[Address, NodeClient] = {}

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()

    async def ask(self, request: Any) -> Any:
        """Sends a request to any node and returns the response. The caller must check the error code. Raises
        AdminError."""
        return await self._until(lambda: self._ask_any(request))

    async def ask_controller(self, request: Any, error_of: Callable[[Any], int]) -> Any:
        """Sends a request to the active controller, directly or through a broker, and returns the response. Raises
        AdminError.

        `error_of` returns the error code of a response. After NOT_CONTROLLER and the other codes of _LOOK_AGAIN, this
        method tries again.
        """

        async def attempt() -> Any:
            answer = await self._ask_any(request) if self.kind == BROKERS else None
            if answer is None or error_of(answer) == ErrorCode.NOT_CONTROLLER:
                answer = await self._ask_active(request)
            return None if error_of(answer) in _LOOK_AGAIN else answer

        return await self._until(attempt)

    async def ask_broker(self, broker_id: int, request: Any) -> Any:
        """Sends a request to one broker, for changes that only this broker can make. Returns the response, or None if
        the broker is not alive. Raises AdminError."""
        brokers = (await self.describe_cluster()).brokers
        address = next((Address(each.host, each.port) for each in brokers if each.broker_id == broker_id), None)
        return None if address is None else await self._until(lambda: self._client(address).request(request))

    async def describe_cluster(self, *, include_fenced: bool = False) -> Any:
        """Returns the response to a DescribeCluster request about nodes of this kind. Raises AdminError."""
        request = apis.request_class(ApiKey.DESCRIBE_CLUSTER)(
            endpoint_type=self.kind, include_fenced_brokers=include_fenced
        )
        answer = await self.ask(request)
        if answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE:
            option, wanted, found = _KINDS[self.kind]
            raise AdminError(f"{option} {self._where} names a {found}, but this option needs {wanted}s")
        check(answer.error_code, answer.error_message)
        return answer

    async def _ask_active(self, request: Any) -> Any:
        cluster = await self.describe_cluster()
        for node in cluster.brokers:
            if node.broker_id == cluster.controller_id:
                return await self._client(Address(node.host, node.port)).request(request)
        raise ConnectionError("there is no active controller")

    async def _ask_any(self, request: Any) -> Any:
        failed = []
        for address in self._bootstrap:
            try:
                return await self._client(address).request(request)
            except OSError as error:
                failed.append(str(error))
        raise ConnectionError("; ".join(failed))

    async def _until(self, attempt: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Repeats the attempt until it returns a response. Gives up after the time that Kafka's tools would wait."""
        why = "no active controller was found"
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    try:
                        if (answer := await attempt()) is not None:
                            return answer
                    except OSError as error:
                        why = str(error)
                    except UnsupportedVersionError as error:
                        option, wanted, _ = _KINDS[self.kind]
                        advice = f"Check that {option} names {wanted}s, and that their release is 3.9 or later"
                        raise AdminError(f"{error}. {advice}") from error
                    except (KafkaError, ProtocolError) as error:  # ProtocolError: the request cannot be encoded
                        raise AdminError(str(error)) from error
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise AdminError(f"no answer from {self._where} within {LIMIT_S} s: {why}") from None

    def _client(self, address: Address) -> NodeClient:
        if address not in self._clients:
            self._clients[address] = NodeClient(address.host, address.port, CLIENT_ID)
        return self._clients[address]


def check(code: int, message: str | None) -> None:
    """Raises AdminError if the error code is not 0."""
    if code:
        raise AdminError(message or str(error_for(error_of_peer(code))))
