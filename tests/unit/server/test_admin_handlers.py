"""Requests of administrators: which ones a broker handles itself, and which ones it forwards."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.config import BrokerConfig
from kafkacore.metadata.edit import Edit
from kafkacore.metadata.image import EMPTY_IMAGE
from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ClientQuotaRecord,
    ConfigRecord,
    DescribeClientQuotasRequest,
    DescribeTransactionsRequest,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListTransactionsRequest,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.slices import finish_now
from kafkacore.server.handlers.broker import (
    alter_configs,
    describe_client_quotas,
    list_config_resources,
    transactions,
)

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
CONFIG = BrokerConfig(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    },
    dynamic_broker={"log.cleanup.policy": "compact"},
)


class Channel:
    """A stub of the controller. It accepts every resource except those with the name "bad", and leaves out the answer
    for those with the name "lost"."""

    def __init__(self) -> None:
        self.forwarded: list[Any] = []

    async def forward(self, call: RequestContext, request: Any) -> Any:
        self.forwarded.append(request)
        legacy = isinstance(request, AlterConfigsRequest)
        made: Any = AlterConfigsResponse if legacy else IncrementalAlterConfigsResponse
        told = [
            made.AlterConfigsResourceResponse(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                error_code=ErrorCode.INVALID_CONFIG if each.resource_name == "bad" else 0,
                error_message="bad" if each.resource_name == "bad" else None,
            )
            for each in reversed(request.resources)
            if each.resource_name != "lost"
        ]
        return made(responses=told)


class Asked:
    def __init__(self) -> None:
        self.channel = Channel()
        self.loggers = 0
        self.broker: Any = SimpleNamespace(node_id=1, config=CONFIG, channel=self.channel, loggers_changed=self.changed)

    def changed(self) -> None:
        self.loggers += 1

    def incremental(self, *resources: Any, validate_only: bool = False) -> list[tuple[int, str | None]]:
        request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
        return self._ask(44, 1, request)

    def legacy(self, *resources: Any) -> list[tuple[int, str | None]]:
        return self._ask(33, 2, AlterConfigsRequest(resources=list(resources)))

    def _ask(self, key: int, version: int, request: Any) -> list[tuple[int, str | None]]:
        call = RequestContext(key, version, 0, None, "PLAINTEXT", "127.0.0.1")
        answer: Any = asyncio.run(alter_configs.handle(self.broker, call, request))
        answer = apis.response_class(key).decode(answer.encode(version), version)
        asked = [(each.resource_type, each.resource_name) for each in request.resources]
        assert [(each.resource_type, each.resource_name) for each in answer.responses] == asked
        return [(each.error_code, each.error_message) for each in answer.responses]

    @property
    def passed_on(self) -> list[tuple[int, str]]:
        return [(each.resource_type, each.resource_name) for each in self.channel.forwarded[0].resources]


@pytest.fixture
def asked() -> Asked:
    return Asked()


def changes(kind: int, name: str, *configs: tuple[str, int, str | None]) -> Any:
    made = IncrementalAlterConfigsRequest
    return made.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[made.AlterableConfig(name=key, config_operation=o, value=value) for key, o, value in configs],
    )


def settings(kind: int, name: str, **configs: str | None) -> Any:
    made = AlterConfigsRequest
    return made.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[made.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def test_valid_resources_are_forwarded_and_answered_in_order(asked: Asked) -> None:
    told = asked.incremental(
        changes(TOPIC, "good", ("retention.ms", SET, "1")),
        changes(BROKER, "1", ("node.id", SET, "2")),
        changes(TOPIC, "bad", ("retention.ms", DELETE, None)),
        changes(GROUP, "g", ("x", SET, "1")),
        changes(99, "x"),
        changes(TOPIC, "lost"),
    )
    assert told == [
        (0, None),
        (ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: [node.id]"),
        (ErrorCode.INVALID_CONFIG, "bad"),
        (0, None),
        (ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "The controller's answer does not mention this resource."),
    ]
    assert asked.passed_on == [(TOPIC, "good"), (TOPIC, "bad"), (GROUP, "g"), (TOPIC, "lost")]


def test_resource_named_twice_or_without_a_value_is_refused(asked: Asked) -> None:
    twice = changes(TOPIC, "t", ("a", SET, "1"))
    told = asked.incremental(
        twice, twice, changes(TOPIC, "u", ("a", SET, "1"), ("a", SET, "2")), changes(TOPIC, "v", ("a", APPEND, None))
    )
    assert told == [
        (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."),
        (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."),
        (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys"),
        (ErrorCode.INVALID_REQUEST, "Null value not supported for : a"),
    ]
    assert asked.channel.forwarded == []
    assert asked.legacy(settings(TOPIC, "t", a=None))[0][0] == ErrorCode.INVALID_REQUEST


def test_broker_accepts_settings_of_itself_and_of_all_brokers_alone(asked: Asked) -> None:
    told = asked.incremental(*[changes(BROKER, name, ("message.max.bytes", SET, "7")) for name in ("1", "", "2", "x")])
    assert [message for _, message in told] == [
        None,
        None,
        "Unexpected broker id, expected 1, but received 2",
        "Node id must be an integer, but it is: x",
    ]
    assert asked.passed_on == [(BROKER, "1"), (BROKER, "")]


def test_append_and_subtract_change_the_list_that_is_set(asked: Asked) -> None:
    for name, operation, error in (
        ("log.cleanup.policy", APPEND, 0),
        ("message.max.bytes", SUBTRACT, ErrorCode.INVALID_CONFIG),
        ("no.such.key", APPEND, ErrorCode.INVALID_CONFIG),
        ("message.max.bytes", 9, ErrorCode.INVALID_REQUEST),
    ):
        assert asked.incremental(changes(BROKER, "1", (name, operation, "delete")))[0][0] == error
    # "x" is not a valid cleanup policy.
    assert asked.incremental(changes(BROKER, "1", ("log.cleanup.policy", APPEND, "x")))[0][0] == 42
    # The cluster default has no value yet, so the operation changes the static default.
    assert asked.incremental(changes(BROKER, "", ("log.cleanup.policy", SUBTRACT, "delete")))[0][0] == 0


def test_full_replacement_is_checked_as_a_whole(asked: Asked) -> None:
    assert asked.legacy(settings(BROKER, "1", log_segment_bytes="17"))[0][0] == ErrorCode.INVALID_REQUEST
    assert asked.legacy(settings(BROKER, "1", log_segment_bytes="1048576")) == [(0, None)]
    assert asked.legacy(settings(LOGGER, "1", root="DEBUG"))[0] == (42, "Unknown resource type 8")


def test_group_setting_without_effect_is_logged_when_it_is_stored(asked: Asked, caplog: Any) -> None:
    change = changes(GROUP, "g", ("share.isolation.level", SET, "read_committed"), ("share.x", DELETE, None))
    assert asked.incremental(change, validate_only=True) == [(0, None)]
    assert caplog.messages == []
    assert asked.incremental(change) == [(0, None)]
    assert caplog.messages == [
        "g: share.isolation.level: valid, but has no effect here: share groups are not supported yet"
    ]


def test_log_has_few_lines_when_one_request_changes_very_many_groups(asked: Asked, caplog: Any) -> None:
    groups = [changes(GROUP, f"g{n}", ("share.isolation.level", SET, "read_committed")) for n in range(500)]
    assert asked.incremental(*groups) == [(0, None)] * 500
    assert len(caplog.messages) == 11
    assert caplog.messages[0].startswith("g0: share.isolation.level: valid, but has no effect here")
    assert caplog.messages[-1] == "490 more settings of the same request have no effect on this node"


def test_logger_levels_change_at_once_and_all_or_none(asked: Asked) -> None:
    name, other = "kafkacore.tested", "kafkacore.tested.other"
    logging.getLogger(other).setLevel(logging.NOTSET)
    logging.getLogger(name).setLevel(logging.ERROR)
    one = changes(LOGGER, "1", (name, SET, "DEBUG"), (other, SET, "TRACE"))
    assert asked.incremental(one, validate_only=True) == [(0, None)]
    assert logging.getLogger(name).level == logging.ERROR
    assert asked.incremental(one) == [(0, None)]
    assert (logging.getLogger(name).level, logging.getLogger(other).level) == (logging.DEBUG, 5)
    assert asked.loggers == 2
    assert asked.incremental(changes(LOGGER, "1", (other, DELETE, None))) == [(0, None)]
    assert logging.getLogger(other).getEffectiveLevel() == logging.DEBUG
    for wrong, error in (
        (changes(LOGGER, "1", (name, SET, "ERROR"), (other, SET, "LOUD")), ErrorCode.INVALID_CONFIG),
        (changes(LOGGER, "1", ("no.such.logger", SET, "ERROR")), ErrorCode.INVALID_CONFIG),
        (changes(LOGGER, "1", ("root", DELETE, None)), ErrorCode.INVALID_REQUEST),
        (changes(LOGGER, "1", (name, APPEND, "ERROR")), ErrorCode.INVALID_REQUEST),
        (changes(LOGGER, "2", (name, SET, "ERROR")), ErrorCode.INVALID_REQUEST),
        (changes(LOGGER, "", (name, SET, "ERROR")), ErrorCode.INVALID_REQUEST),
    ):
        assert asked.incremental(wrong)[0][0] == error
    assert logging.getLogger(name).level == logging.DEBUG
    assert asked.channel.forwarded == []


# --- descriptions of the metadata ---


def image(*records: Any) -> Any:
    edit = Edit(EMPTY_IMAGE)
    for record in records:
        edit.replay(record)
    return edit.freeze(1, 1, 1)


def quota(key: str, value: float, **entity: str | None) -> Any:
    data = [ClientQuotaRecord.EntityData(entity_type=k.replace("_", "-"), entity_name=v) for k, v in entity.items()]
    return ClientQuotaRecord(entity=data, key=key, value=value)


QUOTAS = image(
    quota("producer_byte_rate", 1.0, user="alice"),
    quota("consumer_byte_rate", 2.0, user="alice"),
    quota("producer_byte_rate", 3.0, user=None),
    quota("producer_byte_rate", 4.0, user="alice", client_id="app"),
    quota("producer_byte_rate", 5.0, client_id=None),
    quota("connection_creation_rate", 6.0, ip="10.0.0.1"),
)
EXACT, DEFAULT, SPECIFIED = range(3)


def quotas(*components: tuple[str, int, str | None], strict: bool = False) -> list[float]:
    made = DescribeClientQuotasRequest
    request = made(
        components=[
            made.ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in components
        ],
        strict=strict,
    )
    broker: Any = SimpleNamespace(image=QUOTAS)
    answer: Any = finish_now(describe_client_quotas.handle(broker, RequestContext(48, 1, 0, None, "", ""), request))
    answer = type(answer).decode(answer.encode(1), 1)
    return sorted(value.value for entry in answer.entries for value in entry.values)


def test_quotas_match_every_kind_of_filter() -> None:
    assert quotas() == [1, 2, 3, 4, 5, 6]
    assert quotas(("user", EXACT, "alice")) == [1, 2, 4]
    assert quotas(("user", EXACT, "alice"), strict=True) == [1, 2]
    assert quotas(("user", DEFAULT, None)) == [3]
    assert quotas(("user", SPECIFIED, None)) == [1, 2, 3, 4]
    assert quotas(("user", SPECIFIED, None), ("client-id", SPECIFIED, None)) == [4]
    assert quotas(("client-id", DEFAULT, None)) == [5]
    assert quotas(("ip", EXACT, "10.0.0.1")) == [6]
    assert quotas(("ip", EXACT, "10.0.0.2")) == []


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("", EXACT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "x"), ("user", EXACT, "y")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "x"), ("ip", EXACT, "y")], ErrorCode.INVALID_REQUEST),
        ([("group", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_invalid_quota_filter_is_refused(components: Any, error: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        quotas(*components)
    assert refused.value.code == error


def resources(version: int, *kinds: int) -> Any:
    made = RegisterBrokerRecord.BrokerEndpoint
    registered = RegisterBrokerRecord(broker_id=1, end_points=[made(name="PLAINTEXT", host="h", port=1)])
    stored = image(
        registered,
        TopicRecord(name="t", topic_id=Uuid(b"t" * 16)),
        ConfigRecord(resource_type=GROUP, resource_name="g", name="x", value="1"),
        ConfigRecord(resource_type=METRICS, resource_name="m", name="x", value="1"),
    )
    broker: Any = SimpleNamespace(image=stored)
    call = RequestContext(74, version, 0, None, "PLAINTEXT", "")
    answer: Any = finish_now(
        list_config_resources.handle(broker, call, ListConfigResourcesRequest(resource_types=list(kinds)))
    )
    return answer.error_code or [(each.resource_type, each.resource_name) for each in answer.config_resources]


def test_config_resources_are_listed_by_type() -> None:
    assert resources(1) == [(GROUP, "g"), (METRICS, "m"), (LOGGER, "1"), (BROKER, "1"), (TOPIC, "t")]
    assert resources(1, TOPIC, GROUP) == [(GROUP, "g"), (TOPIC, "t")]
    assert resources(0) == [(METRICS, "m")]
    assert resources(1, 77) == ErrorCode.UNSUPPORTED_VERSION


def test_transaction_apis_answer_as_a_broker_that_coordinates_none() -> None:
    broker: Any = SimpleNamespace(image=EMPTY_IMAGE, node_id=1)
    of_kafka = image(
        TopicRecord(name="__transaction_state", topic_id=Uuid(b"t" * 16)),
        PartitionRecord(
            partition_id=0, topic_id=Uuid(b"t" * 16), replicas=[1], isr=[1], leader=1, directories=[Uuid(b"d" * 16)]
        ),
    )
    left: Any = SimpleNamespace(image=of_kafka, node_id=1)
    listing, describing = RequestContext(66, 2, 0, None, "", ""), RequestContext(65, 0, 0, None, "", "")
    answer = transactions.handle(broker, listing, ListTransactionsRequest(state_filters=["Ongoing", "Lost"]))
    assert (answer.error_code, answer.unknown_state_filters, answer.transaction_states) == (0, ["Lost"], [])
    asked = DescribeTransactionsRequest(transactional_ids=["a", ""])
    told = [each.error_code for each in finish_now(transactions.handle(broker, describing, asked)).transaction_states]
    assert told == [ErrorCode.NOT_COORDINATOR, ErrorCode.INVALID_REQUEST]
    # Apache Kafka has left transactions behind, but no broker here coordinates transactions.
    assert transactions.handle(left, listing, ListTransactionsRequest()).error_code == 15
    assert finish_now(transactions.handle(left, describing, asked)).transaction_states[0].error_code == 15
    with pytest.raises(KafkaError, match="regular expression"):
        transactions.handle(broker, listing, ListTransactionsRequest(transactional_id_pattern="("))
