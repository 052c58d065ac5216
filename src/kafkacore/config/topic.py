"""The configuration of a topic. If a topic does not set a key, the broker's value applies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from kafkacore.config.attributes import TopicKeys
from kafkacore.config.broker import BrokerConfig
from kafkacore.config.errors import ConfigError
from kafkacore.config.keys import TOPIC, TOPIC_3_9, Key, Keys
from kafkacore.config.sources import Described, Source, Synonym, described
from kafkacore.config.values import Value, default, parse, render, stored

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_RETENTION_OF_BROKER: Final = -2  # this value of local.retention.* means the value of retention.*


class TopicConfig(TopicKeys):
    """The configuration of a topic. Every topic key is an attribute (`retention.ms` becomes `retention_ms`), which is
    resolved at its first access. Immutable.

    A key that the topic does not set gets the value of the broker's key with the same meaning, which may have another
    name and unit. If the broker has no such key, the topic's key gets its default.
    """

    broker: BrokerConfig
    overrides: Mapping[str, str]
    keys: Keys

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str] = _NOTHING) -> None:
        """Ignores a stored setting that this release does not allow. `validate` checks new settings."""
        self.__dict__["broker"] = broker
        self.__dict__["overrides"] = MappingProxyType(dict(overrides))
        self.__dict__["keys"] = TOPIC_3_9 if broker.zookeeper_mode else TOPIC

    @classmethod
    def validate(cls, broker: BrokerConfig, overrides: Mapping[str, str | None]) -> TopicConfig:
        """Checks the settings in a request and returns their configuration. Raises ConfigError (INVALID_CONFIG), as
        Kafka's LogConfig does."""
        given: dict[str, str] = {}
        keys = TOPIC_3_9 if broker.zookeeper_mode else TOPIC
        for name, text in overrides.items():
            key = keys.get(name)
            if key is None or not _known(key, broker):
                raise ConfigError(name, text, "unknown topic config name")
            if text is None:
                raise ConfigError(name, text, "null value is not supported for topic configs")
            parse(key, text)
            given[name] = text
        config = cls(broker, given)
        _check_relations(config)
        return config

    def value(self, name: str) -> Value:
        if name in self.overrides:
            value, problem = stored(self.keys[name], self.overrides)
            if problem is None:
                return value
        inherited = self.broker.inherited
        if name not in inherited:
            inherited[name] = self._inherit(self.keys[name])
        return inherited[name]

    def _inherit(self, key: Key) -> Value:
        for broker_name, factor in key.broker_keys:
            inherited = self.broker.value(broker_name)
            if inherited is not None:
                value = inherited * factor if factor != 1 and isinstance(inherited, int) else inherited
                return max(value, -1) if key.name == "retention.ms" and isinstance(value, int) else value
        return default(key)

    @property
    def segment_size_bytes(self) -> int:
        """The value of segment.bytes, or of internal.segment.bytes, with which tests set smaller segments than Kafka
        allows."""
        internal = self.internal_segment_bytes
        return self.segment_bytes if internal is None else internal

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    def describe(self, name: str) -> Described:
        """Returns the entry of DescribeConfigs for `name`. The value of an unknown key is hidden, as secrets are."""
        key = self.keys.get(name)
        value = render(self.value(name)) if key is not None else None
        synonyms: list[Synonym] = []
        if name in self.overrides:
            synonyms.append(Synonym(name, value, Source.TOPIC_CONFIG))
        if key is not None and key.broker_keys:
            synonyms += self.broker.synonyms(key.broker_keys[0][0])
        return described(self.keys, name, value, synonyms)

    def notes(self) -> Iterator[str]:
        """Yields a line for each setting that is unknown, no longer allowed, or has no effect in kafkacore."""
        yield from notes(self.keys, self.overrides)

    def described_names(self) -> Iterator[str]:
        """Yields the names that DescribeConfigs shows: every key that the topic sets, and every other key that is not
        internal."""
        shown = dict.fromkeys(key.name for key in self.keys if _known(key, self.broker) and not key.internal)
        return iter(shown | dict.fromkeys(self.overrides))


def notes(keys: Keys, values: Mapping[str, str]) -> Iterator[str]:
    """Yields a line for each value that is unknown, not allowed, or has no effect in kafkacore."""
    for name in values:
        key = keys.get(name)
        if key is None:
            yield keys.unknown(name)
        elif (problem := stored(key, values)[1]) is not None:
            yield f"{problem}; it is kept, but not used"
        elif not key.honoured:
            yield f"{name}: valid, but has no effect here: {keys.reason(name)}"


def _known(key: Key, broker: BrokerConfig) -> bool:
    return key.generation != ("4.3" if broker.zookeeper_mode else "3.9")


def _check_relations(config: TopicConfig) -> None:
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        limit = config.max_compaction_lag_ms
        raise ConfigError(
            "min.compaction.lag.ms", config.min_compaction_lag_ms, f"must be at most max.compaction.lag.ms={limit}"
        )
    if config.remote_storage_enable:
        _check_remote_storage(config)


def _check_remote_storage(config: TopicConfig) -> None:
    if not config.broker.remote_log_storage_system_enable:
        raise ConfigError(
            "remote.storage.enable", "true", "tiered storage is off: remote.log.storage.system.enable is false"
        )
    if config.cleanup_policy not in ((), ("delete",)):
        raise ConfigError(
            "cleanup.policy", render(config.cleanup_policy), "must be delete while remote.storage.enable is true"
        )
    _check_local_retention(
        "bytes", config.local_retention_bytes, config.retention_bytes, frozen=config.remote_log_copy_disable
    )
    _check_local_retention("ms", config.local_retention_ms, config.retention_ms, frozen=config.remote_log_copy_disable)


def _check_local_retention(unit: str, local: int, whole: int, *, frozen: bool) -> None:
    """Checks local retention against total retention. If `frozen`, nothing more is copied to the remote tier, so the
    two limits must be equal."""
    if local == _RETENTION_OF_BROKER:
        return
    if whole != -1 and not 0 <= local <= whole:
        raise ConfigError(
            f"local.retention.{unit}", local, f"must be at most retention.{unit}={whole}, or -2 for the same"
        )
    if frozen and local != whole:
        raise ConfigError(
            f"local.retention.{unit}", local, f"must be retention.{unit}={whole} while remote.log.copy.disable is true"
        )
