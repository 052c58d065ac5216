"""The configuration of a group (KIP-848, KIP-932, KIP-1071). If a group does not set a key, the broker's value
applies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from kafkacore.config.broker import BrokerConfig
from kafkacore.config.errors import ConfigError
from kafkacore.config.keys import BROKER, GROUP
from kafkacore.config.sources import Described, Source, Synonym, described
from kafkacore.config.values import Value, default, parse, render, stored

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_KINDS: Final = ("consumer", "share", "streams")
# The broker's key that limits this key does not follow the naming pattern of the others.
_STANDBYS: Final = "streams.num.standby.replicas"
_MOST_STANDBYS: Final = "group.streams.max.standby.replicas"


class GroupConfig:
    """The configuration of a group. Ignores a stored setting that this release does not allow. `validate` checks new
    settings."""

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str] = _NOTHING) -> None:
        self.broker = broker
        self.overrides = overrides

    @classmethod
    def validate(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupConfig:
        """Checks the settings in a request and returns their configuration. Raises ConfigError (INVALID_CONFIG)."""
        for name, text in overrides.items():
            if name not in GROUP:
                raise ConfigError(name, text, "unknown group config name")
            parse(GROUP[name], text)
        config = cls(broker, overrides)
        for key in GROUP:
            config._check_bounds(key.name)
        for kind in _KINDS:
            config._check_heartbeat(f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms")
        return config

    def value(self, name: str) -> Value:
        """Returns the typed value of a key. Raises KeyError for an unknown key."""
        key = GROUP[name]
        if name in self.overrides:
            value, problem = stored(key, self.overrides)
            if problem is None:
                return value
        return self.broker.value(key.broker_keys[0][0]) if key.broker_keys else default(key)

    def describe(self, name: str) -> Described:
        """Returns the entry of DescribeConfigs for `name`. The value of an unknown key is hidden, as secrets are."""
        key = GROUP.get(name)
        value = render(self.value(name)) if key is not None else None
        synonyms: list[Synonym] = []
        if name in self.overrides:
            synonyms.append(Synonym(name, value, Source.GROUP_CONFIG))
        if key is not None and key.broker_keys:
            synonyms += self.broker.synonyms(key.broker_keys[0][0])
        elif key is not None:
            synonyms.append(Synonym(name, render(default(key)), Source.DEFAULT_CONFIG))
        return described(GROUP, name, value, synonyms)

    def described_names(self) -> Iterator[str]:
        return iter(dict.fromkeys((*GROUP.names(), *self.overrides)))

    def _check_bounds(self, name: str) -> None:
        """Checks the value of a key against the bounds that the broker's keys set. Does not check an interval that the
        group does not set."""
        if name.endswith(".assignment.interval.ms") and name not in self.overrides:
            return
        kind, _, rest = name.partition(".")
        value = self.value(name)
        least, most = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
        if name == _STANDBYS:
            most = _MOST_STANDBYS
        if least in BROKER and _number(value) < _number(self.broker.value(least)):
            raise ConfigError(name, value, f"must be greater than or equal to {least}={self.broker.value(least)}")
        if most in BROKER and _number(value) > _number(self.broker.value(most)):
            raise ConfigError(name, value, f"must be less than or equal to {most}={self.broker.value(most)}")

    def _check_heartbeat(self, session: str, heartbeat: str) -> None:
        if _number(self.value(session)) <= _number(self.value(heartbeat)):
            raise ConfigError(session, self.value(session), f"must be greater than {heartbeat}={self.value(heartbeat)}")


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value
