"""DescribeConfigs: values, where they come from, their types and what they mean (KIP-133, KIP-226, KIP-569)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from kafkacore.config import BrokerConfig, TopicConfig
from kafkacore.config.sources import Described, Source
from kafkacore.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC, MetadataImage
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from kafkacore.server import loggers
from kafkacore.storage.names import topic_name_problem

BROKER_LOGGER: Final = 8  # a resource type that no record has: levels of loggers are not stored (KIP-412)

Result = DescribeConfigsResponse.DescribeConfigsResult
Entry = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


class ConfigView(Protocol):
    """What both kinds of context tell."""

    @property
    def node_id(self) -> int: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def image(self) -> MetadataImage: ...
    def topic_overrides(self, name: str) -> Mapping[str, str] | None:
        """What was set for a topic; None when there is no such topic."""


def handle(context: ConfigView, call: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_describe(context, request, each) for each in request.resources])


def _describe(context: ConfigView, request: Any, resource: Any) -> Result:
    result = Result(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        result.configs = _entries(context, request, resource)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, str(error)
    return result


def _entries(context: ConfigView, request: Any, resource: Any) -> list[Entry]:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        return _topic_entries(context, request, resource)
    if resource.resource_type == BROKER:
        if not name:
            return _default_entries(context, request, resource)
        _check_broker(context, name, " or empty string,")
        return _broker_entries(context, request, resource)
    if resource.resource_type == BROKER_LOGGER:
        if not name:
            raise error_for(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        _check_broker(context, name, "")
        return _logger_entries(resource)
    if resource.resource_type == GROUP:
        return _group_entries(context, request, resource)
    if resource.resource_type == CLIENT_METRICS:
        return _client_metrics_entries(context, request, resource)
    raise error_for(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource.resource_type} for resource {name}")


def _check_broker(context: ConfigView, name: str, otherwise: str) -> None:
    try:
        broker_id = int(name)
    except ValueError:
        raise error_for(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if broker_id != context.node_id:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {context.node_id}{otherwise} but received {name}",
        )


def _wanted(names: Iterable[str], resource: Any) -> list[str]:
    keys = frozenset(resource.configuration_keys or ())
    return [name for name in names if name in keys] if keys else list(names)


def _entry(request: Any, told: Described) -> Entry:
    return Entry(
        name=told.name,
        value=told.value,
        read_only=told.read_only,
        config_source=told.source,
        is_sensitive=told.sensitive,
        synonyms=[Synonym(**each._asdict()) for each in told.synonyms] if request.include_synonyms else [],
        config_type=told.type_id,
        documentation=told.documentation if request.include_documentation else None,
    )


def _broker_entries(context: ConfigView, request: Any, resource: Any) -> list[Entry]:
    config = context.config
    return [_entry(request, config.describe(name)) for name in _wanted(config.described_names(), resource)]


def _default_entries(context: ConfigView, request: Any, resource: Any) -> list[Entry]:
    """Only what was changed for all brokers."""
    config, entries = context.config, []
    for name in _wanted(config.dynamic_default, resource):
        told = config.describe(name)
        value = None if told.sensitive else config.dynamic_default[name]
        behind = tuple(each for each in told.synonyms if each.source == Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
        source = Source.DYNAMIC_DEFAULT_BROKER_CONFIG
        entries.append(_entry(request, told._replace(value=value, source=source, synonyms=behind)))
    return entries


def _topic_entries(context: ConfigView, request: Any, resource: Any) -> list[Entry]:
    problem = topic_name_problem(resource.resource_name)
    if problem is not None:
        raise error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic name is invalid: {problem}.")
    overrides = context.topic_overrides(resource.resource_name)
    if overrides is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    topic = TopicConfig(context.config, overrides)
    return [_entry(request, topic.describe(name)) for name in _wanted(topic.described_names(), resource)]


def _group_entries(context: ConfigView, request: Any, resource: Any) -> list[Entry]:
    """Of any name: a group can be configured before it exists."""
    from kafkacore.config.group import GroupConfig

    if not resource.resource_name:
        raise error_for(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    group = GroupConfig(context.config, context.image.set_config(GROUP, resource.resource_name))
    return [_entry(request, group.describe(name)) for name in _wanted(group.described_names(), resource)]


def _client_metrics_entries(context: ConfigView, request: Any, resource: Any) -> list[Entry]:
    from kafkacore.config.client_metrics import ClientMetricsConfig

    if not resource.resource_name:
        raise error_for(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    asked = ClientMetricsConfig(context.image.set_config(CLIENT_METRICS, resource.resource_name))
    return [_entry(request, asked.describe(name)) for name in _wanted(asked.described_names(), resource)]


def _logger_entries(resource: Any) -> list[Entry]:
    levels = loggers.levels()
    return [
        Entry(
            name=name,
            value=levels[name],
            config_source=Source.DYNAMIC_BROKER_LOGGER_CONFIG,
            config_type=0,
        )
        for name in _wanted(levels, resource)
    ]
