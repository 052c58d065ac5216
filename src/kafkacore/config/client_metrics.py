"""The configuration of a client metrics subscription (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kafkacore.config.errors import ConfigError
from kafkacore.config.keys import CLIENT_METRICS
from kafkacore.config.patterns import syntax_error
from kafkacore.config.sources import TYPE_IDS, Described, Source, Synonym
from kafkacore.config.values import Value, default, parse, render, stored

_INTERVAL: Final = "interval.ms"
_MATCH: Final = "match"
_LEAST_MS: Final = 100
_MOST_MS: Final = 3_600_000
_MATCHED: Final = frozenset(
    (
        "client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address",
        "client_source_port",
    )
)  # fmt: skip


class MatchError(ConfigError):
    """A malformed pattern for the matching of clients. Kafka has a separate error code for this error."""


class ClientMetricsConfig:
    """The configuration of a subscription. Ignores a stored setting that this release does not allow. `validate` checks
    new settings."""

    def __init__(self, overrides: Mapping[str, str]) -> None:
        self.overrides = overrides

    @classmethod
    def validate(cls, overrides: Mapping[str, str]) -> ClientMetricsConfig:
        """Checks the settings that a request contains for a subscription, and returns the subscription's configuration.
        Raises ConfigError (INVALID_REQUEST), MatchError (INVALID_CONFIG)."""
        for name, text in overrides.items():
            if name not in CLIENT_METRICS:
                raise ConfigError(name, text, "unknown client metrics configuration")
            parse(CLIENT_METRICS[name], text)
        config = cls(overrides)
        interval_ms = config.value(_INTERVAL)
        assert isinstance(interval_ms, int)
        if not _LEAST_MS <= interval_ms <= _MOST_MS:
            raise ConfigError(_INTERVAL, interval_ms, f"must be between {_LEAST_MS} and {_MOST_MS} (1 hour)")
        patterns = config.value(_MATCH)
        assert isinstance(patterns, tuple)
        for pattern in patterns:
            _check_pattern(pattern)
        return config

    def value(self, name: str) -> Value:
        """Returns the typed value of a key. Raises KeyError for an unknown key."""
        key = CLIENT_METRICS[name]
        if name in self.overrides:
            value, problem = stored(key, self.overrides)
            if problem is None:
                return value
        return default(key)

    def describe(self, name: str) -> Described:
        """Returns the entry of DescribeConfigs for `name`."""
        key = CLIENT_METRICS.get(name)
        value = self.overrides[name] if key is None else render(self.value(name))
        source = Source.CLIENT_METRICS_CONFIG if name in self.overrides else Source.DEFAULT_CONFIG
        return Described(
            name=name,
            value=value,
            source=source,
            sensitive=False,
            read_only=False,
            type_id=TYPE_IDS[key.type] if key is not None else 0,
            synonyms=(Synonym(name, value, source),) if name in self.overrides else (),
            documentation=CLIENT_METRICS.documentation(name),
        )

    def described_names(self) -> Iterator[str]:
        return iter(dict.fromkeys((*CLIENT_METRICS.names(), *self.overrides)))


def _check_pattern(pattern: str) -> None:
    """Checks `ATTRIBUTE=REGULAR EXPRESSION`. Kafka's regular expressions are Java's."""
    parts = pattern.split("=")
    if len(parts) != 2 or parts[0].strip() not in _MATCHED:
        raise MatchError(
            _MATCH, pattern, f"illegal client matching pattern; attributes are {', '.join(sorted(_MATCHED))}"
        )
    problem = syntax_error(parts[1].strip())
    if problem is not None:
        raise MatchError(_MATCH, pattern, f"illegal client matching pattern: {problem}")
