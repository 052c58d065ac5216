"""The controller's listener: which requests it passes to the controller, envelopes, and which controllers it names."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.metadata.registrations import ControllerRegistration, Endpoint
from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DefaultPrincipalData,
    DescribeClusterRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EnvelopeRequest,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.server.dispatch import SLICED_BYTES, Dispatcher
from kafkacore.server.handlers import CONTROLLER
from kafkacore.server.handlers.controller import decisions


class Quorum:
    active = True
    image = SimpleNamespace(
        controllers={3: ControllerRegistration(3, Uuid(b"c" * 16), (Endpoint("CONTROLLER", "h", 9093),), {})}
    )

    def __init__(self) -> None:
        self.asked: list[tuple[RequestContext, Any]] = []

    async def create_topics(self, caller: RequestContext, request: Any) -> Any:
        self.asked.append((caller, request))
        return CreateTopicsResponse(
            topics=[CreateTopicsResponse.CreatableTopicResult(name=topic.name) for topic in request.topics]
        )


class Raft:
    leader_id = 3

    async def request(self, request: Any) -> Any:
        assert isinstance(request, DescribeQuorumRequest)
        return DescribeQuorumResponse()


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = SimpleNamespace(quorum=Quorum(), raft=Raft(), cluster_id="c")
    made.dispatcher = Dispatcher("controller", made, CONTROLLER)
    monkeypatch.setitem(decisions._METHODS, ApiKey.CREATE_TOPICS, Quorum.create_topics)
    return made


def ask(context: Any, request: Any, version: int) -> Any:
    call = RequestContext(request.API_KEY, version, 1, "me", "CONTROLLER", "10.0.0.1")
    return asyncio.run(context.dispatcher.ask(call, request))


CREATE = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1)])


def envelope(request: Any, version: int, principal: bytes | None = None) -> Any:
    if principal is None:
        principal = DefaultPrincipalData(type="User", name="alice").encode(0, b"\0\0")
    return EnvelopeRequest(
        request_data=apis.encode_request(version, 77, "client", request),
        request_principal=principal,
        client_host_address=b"\x0a\0\0\x07",
    )


def test_envelope_carries_a_request_with_its_client(context: Any) -> None:
    answer = ask(context, envelope(CREATE, 7), 0)
    assert answer.error_code == ErrorCode.NONE
    [(caller, request)] = context.quorum.asked
    assert (caller.principal, caller.client_host, caller.client_id, caller.api_version) == (
        "User:alice",
        "10.0.0.7",
        "client",
        7,
    )
    assert request.topics[0].name == "t"
    head = apis.response_header(ApiKey.CREATE_TOPICS, 7, 77)
    assert answer.response_data.startswith(head)
    assert CreateTopicsResponse.decode(answer.response_data[len(head) :], 7).topics[0].name == "t"


def test_envelope_is_refused_when_the_controller_is_not_active(context: Any) -> None:
    context.quorum.active = False
    assert ask(context, envelope(CREATE, 7), 0).error_code == ErrorCode.NOT_CONTROLLER
    # Every replica of the quorum knows the leader.
    assert ask(context, envelope(DescribeQuorumRequest(), 2), 0).error_code == ErrorCode.NONE


def test_envelope_is_refused_when_its_api_may_not_be_forwarded(context: Any) -> None:
    assert ask(context, envelope(DescribeClusterRequest(), 1), 0).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "request_data",
    [
        b"\0\x13",
        b"\x7f\x13\0\7\0\0\0\x4d\xff\xff\0",
        apis.request_prefix(ApiKey.CREATE_TOPICS, 7, 77, "client") + b"\xff",
        b"\0\x13\0\x63\0\0\0\x4d\xff\xff\0",
        apis.request_prefix(ApiKey.CREATE_TOPICS, 7, 77, "client") + b"\xff" * (SLICED_BYTES + 1),
    ],
    ids=["cut-header", "unknown-api", "cut-body", "unknown-version", "long-body"],
)
def test_envelope_is_of_an_unsupported_version_when_its_request_cannot_be_read(
    context: Any, request_data: bytes
) -> None:
    """The broker then closes its client's connection, and keeps its own."""
    request = envelope(CREATE, 7)
    request.request_data = request_data
    assert ask(context, request, 0).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert not context.quorum.asked


def test_envelope_is_refused_when_its_client_has_no_address(context: Any) -> None:
    request = envelope(CREATE, 7)
    request.client_host_address = b"\x7f"
    assert ask(context, request, 0).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("principal", [b"", b"\0\x09", b"\0\0\xff\xff"])
def test_unreadable_principal_is_refused(context: Any, principal: bytes) -> None:
    answer = ask(context, envelope(CREATE, 7, principal), 0)
    assert answer.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


def test_describe_cluster_names_controllers_when_asked_for_them(context: Any) -> None:
    told = ask(context, DescribeClusterRequest(endpoint_type=2), 1)
    assert [(each.broker_id, each.host, each.port) for each in told.brokers] == [(3, "h", 9093)]
    assert (told.controller_id, told.endpoint_type) == (3, 2)
    assert ask(context, DescribeClusterRequest(), 1).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
