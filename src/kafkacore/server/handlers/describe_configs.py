"""DescribeConfigs: returns the values of keys, with their sources, types and documentation (KIP-133, KIP-226,
KIP-569)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from kafkacore.config import BrokerConfig, TopicConfig
from kafkacore.config.client_metrics import ClientMetricsConfig
from kafkacore.config.group import GroupConfig
from kafkacore.config.sources import Described, Source
from kafkacore.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC, MetadataImage
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from kafkacore.runtime.slices import Work
from kafkacore.server import loggers
from kafkacore.storage.names import topic_name_problem

BROKER_LOGGER: Final = 8  # no metadata record has this resource type: the levels of loggers are not stored (KIP-412)

Resource = DescribeConfigsRequest.DescribeConfigsResource
Result = DescribeConfigsResponse.DescribeConfigsResult
Entry = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


class ConfigView(Protocol):
    """The members of a broker's and of a controller's context that this API needs."""

    @property
    def node_id(self) -> int: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def values_in_effect(self) -> Mapping[str, str]:
        """The default values of this node that differ from Kafka's defaults."""

    def topic_overrides(self, name: str) -> Mapping[str, str] | None:
        """Returns the settings of a topic, or None if the topic does not exist."""


class Inherits(Protocol):
    """The configuration of a topic, a group or a client metrics subscription."""

    @property
    def overrides(self) -> Mapping[str, str]: ...
    def describe(self, name: str) -> Described: ...
    def described_names(self) -> Iterable[str]: ...


def handle(context: ConfigView, call: RequestContext, request: DescribeConfigsRequest) -> Work[DescribeConfigsResponse]:
    response = DescribeConfigsResponse()
    description = _Description(context, request)
    for resource in request.resources:
        result = Result(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            result.configs = yield from description.entries(resource)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, str(error)
        response.results.append(result)
        yield
    return response


class _Description:
    """Makes the response to one request. Each inherited entry is created once, because thousands of topics may share
    it. A topic has entries of its own only for the keys that are set for the topic.
    """

    def __init__(self, context: ConfigView, request: DescribeConfigsRequest) -> None:
        self._context = context
        self._config = context.config
        self._image = context.image
        self._request = request
        self._inherited: dict[tuple[int, str], Entry] = {}  # by resource type and key
        self._own: dict[str, Entry] = {}  # entries of the broker's own keys

    def entries(self, resource: Resource) -> Work[list[Entry]]:
        """Returns the entries of a resource. Raises INVALID_REQUEST, INVALID_TOPIC_EXCEPTION,
        UNKNOWN_TOPIC_OR_PARTITION."""
        name, kind = resource.resource_name, resource.resource_type
        if kind == TOPIC:
            return (yield from self._inheriting(resource, self._topic(name)))
        if kind == BROKER:
            if not name:
                return self._defaults_of_brokers(resource)
            self._check_broker(name, " or empty string,")
            return (yield from self._broker(resource))
        if kind == BROKER_LOGGER:
            if not name:
                raise error_for(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            self._check_broker(name, "")
            return _logger_entries(resource)
        if kind == GROUP:
            # Any name is accepted, because a group can be configured before it exists.
            _check_named(name, "Group name")
            return (
                yield from self._inheriting(resource, GroupConfig(self._config, self._image.set_config(kind, name)))
            )
        if kind == CLIENT_METRICS:
            _check_named(name, "Client metrics subscription name")
            return (yield from self._inheriting(resource, ClientMetricsConfig(self._image.set_config(kind, name))))
        raise error_for(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {kind} for resource {name}")

    def _check_broker(self, name: str, otherwise: str) -> None:
        try:
            broker_id = int(name)
        except ValueError:
            raise error_for(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
        if broker_id != self._context.node_id:
            raise error_for(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self._context.node_id}{otherwise} but received {name}",
            )

    def _topic(self, name: str) -> TopicConfig:
        problem = topic_name_problem(name)
        if problem is not None:
            raise error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic name is invalid: {problem}.")
        overrides = self._context.topic_overrides(name)
        if overrides is None:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return TopicConfig(self._config, overrides)

    def _inheriting(self, resource: Resource, config: Inherits) -> Work[list[Entry]]:
        entries, kind = [], resource.resource_type
        for name in _wanted(config.described_names(), resource):
            if name in config.overrides:
                entries.append(self._entry(config.describe(name)))
            else:
                entry = self._inherited.get((kind, name))
                if entry is None:
                    entry = self._inherited[kind, name] = self._entry(config.describe(name))
                entries.append(entry)
            yield
        return entries

    def _broker(self, resource: Resource) -> Work[list[Entry]]:
        entries = []
        for name in _wanted(self._config.described_names(), resource):
            entry = self._own.get(name)
            if entry is None:
                entry = self._own[name] = self._entry(self._in_effect(self._config.describe(name)))
            entries.append(entry)
            yield
        return entries

    def _in_effect(self, described: Described) -> Described:
        value = self._context.values_in_effect.get(described.name)
        if value is None or described.source != Source.DEFAULT_CONFIG:
            return described
        synonyms = tuple(each._replace(value=value) for each in described.synonyms)
        return described._replace(value=value, synonyms=synonyms)

    def _defaults_of_brokers(self, resource: Resource) -> list[Entry]:
        """Returns the entries for the defaults of all brokers. Only keys that were changed have an entry."""
        config, entries = self._config, []
        source = Source.DYNAMIC_DEFAULT_BROKER_CONFIG
        for name in _wanted(config.dynamic_default, resource):
            described = config.describe(name)
            value = None if described.sensitive else config.dynamic_default[name]
            behind = tuple(each for each in described.synonyms if each.source == source)
            entries.append(self._entry(described._replace(value=value, source=source, synonyms=behind)))
        return entries

    def _entry(self, described: Described) -> Entry:
        request = self._request
        return Entry(
            name=described.name,
            value=described.value,
            read_only=described.read_only,
            config_source=described.source,
            is_sensitive=described.sensitive,
            synonyms=[Synonym(**each._asdict()) for each in described.synonyms] if request.include_synonyms else [],
            config_type=described.type_id,
            documentation=described.documentation if request.include_documentation else None,
        )


def _check_named(name: str, what: str) -> None:
    if not name:
        raise error_for(ErrorCode.INVALID_REQUEST, f"{what} must not be empty")


def _wanted(names: Iterable[str], resource: Resource) -> list[str]:
    keys = frozenset(resource.configuration_keys or ())
    return [name for name in names if name in keys] if keys else list(names)


def _logger_entries(resource: Resource) -> list[Entry]:
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
