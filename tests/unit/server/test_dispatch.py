"""The dispatcher, from the bytes of a request to the bytes of its response: versions, malformed requests, and handlers
that fail."""

import asyncio
from array import array
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey, ApiRange
from kafkacore.protocol.errors import ErrorCode, ProtocolError
from kafkacore.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    OffsetCommitRequest,
    ProduceRequest,
    ProduceResponse,
)
from kafkacore.raft.file_log import MetadataLogError
from kafkacore.server import handlers
from kafkacore.server.dispatch import Dispatcher


class Ids:
    def __init__(self) -> None:
        self.fail: Exception | None = None

    async def generate(self) -> int:
        if self.fail is not None:
            raise self.fail
        return 4000


def context(**changes: Any) -> SimpleNamespace:
    made = SimpleNamespace(
        node_id=7,
        api_ranges=[ApiRange(18, 0, 4)],
        supported_features={"group.version": (0, 1), "metadata.version": (7, 29)},
        finalized_features={"kraft.version": 0, "metadata.version": 29},
        finalized_epoch=12,
        endpoint_of=lambda broker_id, listener: SimpleNamespace(host="h", port=9092) if broker_id == 7 else None,
        producer_ids=Ids(),
        image=SimpleNamespace(brokers={}, topic=lambda name: None),
        count_partitions=lambda name: None,
        transactions_refused=False,
    )
    vars(made).update(changes)
    return made


def call(key: int, version: int) -> RequestContext:
    return RequestContext(key, version, 5, "me", "PLAINTEXT", "127.0.0.1")


def answer(dispatcher: Dispatcher, context: RequestContext, body: bytes) -> bytes | None:
    async def whole() -> bytes | None:
        given = dispatcher.answer(context, body)
        return await given if isinstance(given, Awaitable) else given

    return asyncio.run(whole())


def ask(request: Any, version: int, ctx: Any = None, kind: str = "broker") -> bytes | None:
    dispatcher = Dispatcher(kind, ctx or context(), handlers.TABLES[kind])
    return answer(dispatcher, call(request.API_KEY, version), request.encode(version))


def body(request: Any, version: int, frame: bytes | None) -> Any:
    assert frame is not None
    head = apis.response_header(request.API_KEY, version, 5)
    assert frame.startswith(head)
    return apis.response_class(request.API_KEY).decode(frame[len(head) :], version)


def asked(request: Any, version: int, ctx: Any = None) -> Any:
    return body(request, version, ask(request, version, ctx))


SOFTWARE = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")


def test_api_versions_lists_ranges_and_features() -> None:
    told = asked(SOFTWARE, 4)
    assert [(each.api_key, each.min_version, each.max_version) for each in told.api_keys] == [(18, 0, 4)]
    assert {each.name: (each.min_version, each.max_version) for each in told.supported_features} == {
        "group.version": (0, 1),
        "metadata.version": (7, 29),
    }
    assert told.finalized_features_epoch == 12
    # A feature at level 0 is not in use, so the response does not list it.
    assert [(each.name, each.max_version_level) for each in told.finalized_features] == [("metadata.version", 29)]


def test_feature_with_least_level_0_is_hidden_below_version_4() -> None:
    assert [each.name for each in asked(SOFTWARE, 3).supported_features] == ["metadata.version"]


def test_api_versions_has_the_newest_epoch() -> None:
    ctx = context()
    assert asked(SOFTWARE, 4, ctx).finalized_features_epoch == 12
    ctx.finalized_epoch = 13
    assert asked(SOFTWARE, 4, ctx).finalized_features_epoch == 13


@pytest.mark.parametrize("name", ["", "-x", "a b", "x-"])
def test_invalid_software_name_is_refused(name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert asked(request, 3).error_code == ErrorCode.INVALID_REQUEST


def test_newer_api_versions_is_answered_in_version_0_with_our_range() -> None:
    dispatcher = Dispatcher("broker", context(), handlers.BROKER)
    frame = answer(dispatcher, call(ApiKey.API_VERSIONS, 99), b"whatever this version holds")
    assert frame is not None
    told = ApiVersionsResponse.decode(frame[4:], 0)
    assert told.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version, each.max_version) for each in told.api_keys] == [(18, 0, 4)]


def test_old_produce_is_advertised_and_refused_for_each_partition() -> None:
    request = ProduceRequest(acks=-1, timeout_ms=1000)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[ProduceRequest.PartitionProduceData(index=2)])
    request.topic_data = [topic]
    told = asked(request, 2)
    assert isinstance(told, ProduceResponse)
    assert told.responses[0].partition_responses[0].error_code == ErrorCode.UNSUPPORTED_VERSION


def test_api_of_another_kind_of_listener_closes_the_connection() -> None:
    dispatcher = Dispatcher("controller", context(), handlers.CONTROLLER)
    with pytest.raises(ProtocolError, match="PRODUCE is not an API of a controller listener"):
        answer(dispatcher, call(ApiKey.PRODUCE, 9), b"")
    with pytest.raises(ProtocolError, match="is not supported"):
        answer(dispatcher, call(ApiKey.VOTE, 50), b"")


def test_malformed_bytes_close_the_connection() -> None:
    dispatcher = Dispatcher("broker", context(), handlers.BROKER)
    with pytest.raises(ProtocolError):
        answer(dispatcher, call(ApiKey.FIND_COORDINATOR, 4), b"\x01\xff\xff\xff\xff\x0f")


def test_find_coordinator_refuses_transactions_and_shares() -> None:
    told = asked(FindCoordinatorRequest(key_type=1, key="t"), 3)
    assert isinstance(told, FindCoordinatorResponse)
    assert (told.error_code, told.node_id) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
    assert told.error_message is not None
    assert "Transactions are not supported" in told.error_message
    told = asked(FindCoordinatorRequest(key_type=2, coordinator_keys=["g:t:0", "g:t:1"]), 6)
    assert [(each.key, each.error_code) for each in told.coordinators] == [
        ("g:t:0", ErrorCode.INVALID_REQUEST),
        ("g:t:1", ErrorCode.INVALID_REQUEST),
    ]


def test_idempotent_producers_alone_get_producer_ids() -> None:
    told = asked(InitProducerIdRequest(transactional_id=None), 4)
    assert isinstance(told, InitProducerIdResponse)
    assert (told.producer_id, told.producer_epoch, told.error_code) == (4000, 0, 0)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert asked(InitProducerIdRequest(transactional_id="tx"), 4).error_code == refused
    assert asked(InitProducerIdRequest(transactional_id=None, producer_id=3), 4).error_code == ErrorCode.INVALID_REQUEST


def test_broken_handler_fails_its_request_alone() -> None:
    ctx = context()
    ctx.producer_ids.fail = RuntimeError("broken")
    assert asked(InitProducerIdRequest(transactional_id=None), 4, ctx).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_request_is_refused_without_a_traceback_when_the_metadata_log_is_offline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ctx = context()
    ctx.producer_ids.fail = MetadataLogError("the disk is full")
    told = asked(InitProducerIdRequest(transactional_id=None), 4, ctx)
    assert told.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert caplog.records == []


def commit_request() -> OffsetCommitRequest:
    partitions = [OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index) for index in (0, 7)]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=partitions)
    return OffsetCommitRequest(group_id="g", topics=[topic])


def test_request_that_is_read_without_objects_is_refused_and_logged_like_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = SimpleNamespace(name="t", topic_id=bytes(16), partition_rows=array("i", range(8)))

    def ask(group_id: str, operation: Any) -> Any:
        raise RuntimeError("broken")

    ctx = context(image=SimpleNamespace(topic=lambda name: topic), groups=SimpleNamespace(ask=ask))
    with caplog.at_level("DEBUG", "kafka.request.logger"):
        (told,) = asked(commit_request(), 9, ctx).topics
        topic.partition_rows = array("i")
        (refused,) = asked(commit_request(), 9, ctx).topics
    for answer, error in ((told, ErrorCode.UNKNOWN_SERVER_ERROR), (refused, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
        assert [(each.partition_index, each.error_code) for each in answer.partitions] == [(0, error), (7, error)]
    assert sum(repr(commit_request()) in each for each in caplog.messages) == 2
