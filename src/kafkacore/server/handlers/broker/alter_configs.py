"""AlterConfigs and IncrementalAlterConfigs on a broker (KIP-133, KIP-339, KIP-412). The broker makes the checks that
only a broker can make. It changes the levels of its own loggers, and forwards everything else to the active
controller."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from kafkacore.config import BrokerConfig, ConfigError
from kafkacore.config.changes import APPEND, DELETE, NAMES, SUBTRACT, changed
from kafkacore.config.dynamic import check_change
from kafkacore.config.keys import CLIENT_METRICS as CLIENT_METRICS_KEYS
from kafkacore.config.keys import GROUP as GROUP_KEYS
from kafkacore.config.topic import notes
from kafkacore.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.messages import AlterConfigsRequest, IncrementalAlterConfigsRequest, Message
from kafkacore.runtime.slices import Work, finish
from kafkacore.server import loggers
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.describe_configs import BROKER_LOGGER

LOG: Final = logging.getLogger("kafkacore.server")
# No log and no broker reads the settings of these resources, so this module warns that such a setting has no effect.
_OF_OTHERS: Final = {GROUP: GROUP_KEYS, CLIENT_METRICS: CLIENT_METRICS_KEYS}
NOTES_LOGGED: Final = 10  # limit of warnings for one request; a request can change 10,000 groups
Request = AlterConfigsRequest | IncrementalAlterConfigsRequest
Incremental = IncrementalAlterConfigsRequest.AlterConfigsResource
Resource = AlterConfigsRequest.AlterConfigsResource | Incremental
_STORED: Final = (TOPIC, BROKER, CLIENT_METRICS, GROUP)
_UNTOLD: Final = (ErrorCode.UNKNOWN_SERVER_ERROR, "The controller's answer does not mention this resource.")
Settled = dict[int, tuple[int, str | None]]  # the error and message, by the resource's position in the request
Told = dict[tuple[int, str], tuple[int, str | None]]  # the controller's results, by type and name


async def handle(broker: BrokerContext, call: RequestContext, request: Request) -> Message:
    settled = await finish(_settle(broker, call, request))
    rest = [each for at, each in enumerate(_resources(request)) if at not in settled]
    told: Told = {}
    if rest:
        made: Any = type(request)  # the forwarded request has the same class
        forwarded = made(resources=rest, validate_only=request.validate_only)
        answer: Any = await broker.channel.forward(call, forwarded)
        told = {
            (each.resource_type, each.resource_name): (each.error_code, each.error_message) for each in answer.responses
        }
    return await finish(_response(call, request, settled, told))


def _response(call: RequestContext, request: Request, settled: Settled, told: Told) -> Work[Message]:
    response: Any = apis.response_class(call.api_key)()
    noted: list[str] = []
    for at, each in enumerate(_resources(request)):
        yield
        key = each.resource_type, each.resource_name
        error, message = settled[at] if at in settled else told.get(key, _UNTOLD)
        if each.resource_type in _OF_OTHERS and not error and not request.validate_only:
            noted += _notes(each)
        response.responses.append(
            response.AlterConfigsResourceResponse(
                error_code=error, error_message=message, resource_type=key[0], resource_name=key[1]
            )
        )
    for note in noted[:NOTES_LOGGED]:
        LOG.warning("%s", note)
    if len(noted) > NOTES_LOGGED:
        LOG.warning("%d more settings of the same request have no effect on this node", len(noted) - NOTES_LOGGED)
    made: Message = response
    return made


def _resources(request: Request) -> Sequence[Resource]:
    return request.resources


def _notes(resource: Resource) -> list[str]:
    values = {config.name: config.value for config in resource.configs if config.value is not None}
    return [f"{resource.resource_name}: {note}" for note in notes(_OF_OTHERS[resource.resource_type], values)]


def _settle(broker: BrokerContext, call: RequestContext, request: Request) -> Work[Settled]:
    """Decides about the resources that the controller does not need to see."""
    settled: Settled = {}
    counts: dict[tuple[int, str], int] = Counter()
    for each in _resources(request):
        counts[each.resource_type, each.resource_name] += 1
        yield
    for at, resource in enumerate(_resources(request)):
        yield
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise error_for(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check_configs(resource)
            if resource.resource_type == BROKER_LOGGER and isinstance(resource, Incremental):
                loggers.alter(broker.node_id, resource, validate_only=request.validate_only)
                settled[at] = ErrorCode.NONE, None
                broker.loggers_changed()
            elif resource.resource_type == BROKER:
                _check_broker(broker, resource)
            elif resource.resource_type not in _STORED:
                raise error_for(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
        except KafkaError as error:
            settled[at] = error.code, str(error)
    return settled


def _check_configs(resource: Resource) -> None:
    names = [config.name for config in resource.configs]
    if len(set(names)) != len(names):
        raise error_for(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [config.name for config in resource.configs if config.value is None and not _deletes(config)]
    if nulls:
        raise error_for(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def _deletes(config: AlterConfigsRequest.AlterableConfig | IncrementalAlterConfigsRequest.AlterableConfig) -> bool:
    return isinstance(config, IncrementalAlterConfigsRequest.AlterableConfig) and config.config_operation == DELETE


def _check_broker(broker: BrokerContext, resource: Resource) -> None:
    """Checks settings of this broker, or of all brokers. Raises INVALID_REQUEST for values that contradict each other,
    as Kafka does (KAFKA-13609), and INVALID_CONFIG for a list operation on a key that is not a list."""

    name = resource.resource_name
    if name:
        _check_id(broker, name)
    config = broker.config
    if isinstance(resource, Incremental):
        values = _changed(config, resource, dict(config.dynamic_broker if name else config.dynamic_default))
    else:
        values = {each.name: each.value for each in resource.configs if each.value is not None}
    try:
        check_change(config, values, of_one=bool(name))
    except ConfigError as error:
        raise error_for(ErrorCode.INVALID_REQUEST, str(error)) from None


def _check_id(broker: BrokerContext, name: str) -> None:
    try:
        broker_id = int(name)
    except ValueError:
        raise error_for(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if broker_id != broker.node_id:
        raise error_for(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker.node_id}, but received {name}"
        )


def _changed(config: BrokerConfig, resource: Incremental, values: dict[str, str]) -> dict[str, str]:
    for each in resource.configs:
        name, operation = each.name, each.config_operation
        if operation not in NAMES:
            raise error_for(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
        key = config.keys.get(name)
        if operation in (APPEND, SUBTRACT):
            if key is None:
                raise error_for(ErrorCode.INVALID_CONFIG, f"Unknown config name: {name}")
            if key.type != "list":
                problem = f"Config value {NAMES[operation].lower()} is not allowed for config key: {name}"
                raise error_for(ErrorCode.INVALID_CONFIG, problem)
        value = changed(values.get(name), operation, each.value, None if key is None else key.default)
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
    return values
