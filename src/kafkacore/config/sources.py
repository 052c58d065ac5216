"""The entries of a DescribeConfigs response: a value, its type, its source, and the sources that this source
overrides."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from kafkacore.config.keys import Keys


class Source(IntEnum):
    """The ConfigSource of a DescribeConfigsResponse."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


# The ConfigType of a DescribeConfigsResponse. 0 means unknown.
TYPE_IDS: Final = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}


class Synonym(NamedTuple):
    """One source of a value. `value` is None if it is secret."""

    name: str
    value: str | None
    source: Source


class Described(NamedTuple):
    """One entry of DescribeConfigs. `value` is None if it is secret or Kafka's null. `type_id` is Kafka's number for
    the type."""

    name: str
    value: str | None
    source: Source
    sensitive: bool
    read_only: bool
    type_id: int
    synonyms: tuple[Synonym, ...]
    documentation: str


def described(keys: Keys, name: str, value: str | None, synonyms: Sequence[Synonym]) -> Described:
    """Returns the entry for a topic or a group, which inherits settings from the broker. The first synonym is the
    source of the value. The value of an unknown key is hidden, as secrets are."""
    key = keys.get(name)
    return Described(
        name=name,
        value=value,
        source=synonyms[0].source if synonyms else Source.DEFAULT_CONFIG,
        sensitive=key is None,
        read_only=False,
        type_id=TYPE_IDS[key.type] if key is not None else 0,
        synonyms=tuple(synonyms),
        documentation=keys.documentation(name),
    )
