"""Checks the settings of a resource, as Kafka's ControllerConfigurationValidator does."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from kafkacore.config import ConfigError, TopicConfig
from kafkacore.config.client_metrics import ClientMetricsConfig, MatchError
from kafkacore.config.group import GroupConfig
from kafkacore.config.keys import TOPIC as TOPIC_KEYS
from kafkacore.config.values import parse
from kafkacore.controller.quorum.decisions import Settings
from kafkacore.metadata.image import BROKER, GROUP, TOPIC, ConfigKey, MetadataImage
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.storage.names import topic_name_problem


def check_resource(
    image: MetadataImage, settings: Settings, key: ConfigKey, values: Mapping[str, str], changed: AbstractSet[str]
) -> None:
    """Raises KafkaError for an invalid setting. `values` has all settings as they will be after the change. `changed`
    has the names of the changed settings.

    A broker makes these checks, and others, before it forwards a request. The controller repeats them because a client
    can also send its request directly to the controller.
    """
    kind, name = key
    if kind == TOPIC:
        _check_topic(image, settings, name, values, changed)
    elif kind == BROKER:
        _check_broker(image, settings, name)
        _check_broker_values(settings, {each: values[each] for each in changed if each in values})
    elif kind == GROUP:
        _check_group(settings, name, values)
    else:
        _check_client_metrics(name, values)


def exists(image: MetadataImage, settings: Settings, key: ConfigKey) -> bool:
    """Returns whether a topic or a broker exists. The name "" stands for all brokers."""
    kind, name = key
    if kind == TOPIC:
        return image.topic(name) is not None
    try:
        _check_broker(image, settings, name)
    except KafkaError:
        return False
    return True


def _check_topic(
    image: MetadataImage, settings: Settings, name: str, values: Mapping[str, str], changed: AbstractSet[str]
) -> None:
    if not name:
        raise error_for(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    problem = topic_name_problem(name)
    if problem:
        raise error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    # An older release may have stored a key that is unknown now. That key must not prevent changes of other settings.
    known = {each: value for each, value in values.items() if each in changed or each in TOPIC_KEYS}
    try:
        TopicConfig.validate(settings.config, known)
    except ConfigError as error:
        raise error_for(ErrorCode.INVALID_CONFIG, str(error)) from None
    if image.topic(name) is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _check_broker(image: MetadataImage, settings: Settings, name: str) -> None:
    if not name:
        return
    try:
        # int() accepts underscores and surrounding spaces, but Java does not.
        node_id = int("" if "_" in name or name != name.strip() else name)
    except ValueError:
        raise error_for(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.") from None
    if node_id < 0:
        raise error_for(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
    if node_id not in image.brokers and node_id not in image.controllers and node_id != settings.config.node_id:
        raise error_for(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")


def _check_broker_values(settings: Settings, values: Mapping[str, str]) -> None:
    """Raises KafkaError for a value of the wrong type. Only the broker itself can check values against its other
    settings and files."""
    try:
        for name, text in values.items():
            key = settings.config.key(name)
            if key is not None:
                parse(key, text)
    except ConfigError as error:
        raise error_for(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_group(settings: Settings, name: str, values: Mapping[str, str]) -> None:
    if not name:
        raise error_for(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    try:
        GroupConfig.validate(settings.config, values)
    except ConfigError as error:
        raise error_for(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_client_metrics(name: str, values: Mapping[str, str]) -> None:
    if not name:
        raise error_for(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    try:
        ClientMetricsConfig.validate(values)
    except MatchError as error:
        raise error_for(ErrorCode.INVALID_CONFIG, str(error)) from None
    except ConfigError as error:
        raise error_for(ErrorCode.INVALID_REQUEST, str(error)) from None
