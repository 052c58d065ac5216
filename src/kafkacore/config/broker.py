"""The configuration of a node, and its description for DescribeConfigs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Final

from kafkacore.config import properties as property_files
from kafkacore.config import relations
from kafkacore.config.addresses import Address, Voter, parse_address, parse_limits, parse_voter
from kafkacore.config.attributes import BrokerKeys
from kafkacore.config.errors import ConfigError
from kafkacore.config.keys import BROKER, BROKER_3_9, Key, Keys
from kafkacore.config.listeners import (
    Endpoint,
    parse_endpoints,
    parse_protocol_map,
    with_controller_listeners,
)
from kafkacore.config.sources import TYPE_IDS, Described, Source, Synonym
from kafkacore.config.values import Value, default, parse, render

_MS_OF_AN_HOUR: Final = 3_600_000
_MS_OF_A_MINUTE: Final = 60_000
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_LISTENER_PREFIX: Final = "listener.name."
_OF_EACH_LISTENER: Final = ("max.connections", "max.connection.creation.rate")  # KIP-402, KIP-612
# Keys that a listener can have for one of its SASL mechanisms, as listener.name.X.MECHANISM.KEY.
_OF_A_MECHANISM: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
_SYNONYMS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)


class BrokerConfig(BrokerKeys):
    """The configuration of a node. Every key is an attribute, which is parsed at its first access. Immutable.

    The attributes of some keys are computed from several keys. For example, `log_retention_ms` also uses the keys for
    minutes and hours. `listeners` is a tuple of endpoints. If metadata.log.dir is not set, `metadata_log_dir` is the
    first log directory. `value(name)` returns the plain value of a key, and `get(name)` its text.

    A node without `process.roles` but with `zookeeper.connect` is in ZooKeeper mode and has the defaults of Kafka 3.9.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        dynamic_default: Mapping[str, str] = _NOTHING,
        dynamic_broker: Mapping[str, str] = _NOTHING,
        node_defaults: Mapping[str, str] = _NOTHING,
    ) -> None:
        """`dynamic_default` contains the dynamic settings of all brokers, and `dynamic_broker` the dynamic settings of
        this broker (KIP-226).

        `node_defaults` contains the defaults that depend on the machine. They override the defaults in the table.
        Raises ConfigError for the first value that is not allowed or contradicts another value.
        """
        self.__dict__["static"] = MappingProxyType(_with_node_id_synonym(properties))
        self.__dict__["dynamic_default"] = MappingProxyType(dict(dynamic_default))
        self.__dict__["dynamic_broker"] = MappingProxyType(dict(dynamic_broker))
        self.__dict__["node_defaults"] = MappingProxyType(dict(node_defaults))
        self.__dict__["zookeeper_mode"] = "process.roles" not in properties and "zookeeper.connect" in properties
        self.__dict__["_values"] = {}
        self.__dict__["inherited"] = {}
        self.__dict__["keys"] = BROKER_3_9 if self.zookeeper_mode else BROKER
        # A later source overrides an earlier one.
        for source in (self.static, self.dynamic_default, self.dynamic_broker):
            for name, text in source.items():
                key = self.key(name)
                if key is not None:
                    self._values[name] = parse(key, text)
        relations.check(self)

    # The constructor sets these attributes in the instance. They are declared here for type checkers.
    static: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    dynamic_broker: Mapping[str, str]
    node_defaults: Mapping[str, str]
    zookeeper_mode: bool
    keys: Keys
    # Maps each topic key to the value for topics that do not set the key. TopicConfig fills this dictionary.
    inherited: dict[str, Value]
    _values: dict[str, Value]

    @classmethod
    def load(cls, path: str, overrides: Iterable[str] = ()) -> BrokerConfig:
        """Reads a server.properties. The `key=value` texts in `overrides` take precedence. Logs the keys that are
        unknown or have no effect.

        Raises ConfigError.
        """
        config = cls(property_files.load(path) | property_files.parse_overrides(overrides))
        notes = list(config.notes())
        if notes:
            for note in notes:
                logging.getLogger(__name__).warning("%s", note)
        return config

    def with_dynamic(
        self, *, default: Mapping[str, str] | None = None, broker: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """Returns a copy with other dynamic settings. Raises ConfigError."""
        return BrokerConfig(
            self.static,
            dynamic_default=self.dynamic_default if default is None else default,
            dynamic_broker=self.dynamic_broker if broker is None else broker,
            node_defaults=self.node_defaults,
        )

    def with_node_defaults(self, defaults: Mapping[str, str]) -> BrokerConfig:
        """Returns a copy with defaults that depend on the machine. Raises ConfigError."""
        return BrokerConfig(
            self.static,
            dynamic_default=self.dynamic_default,
            dynamic_broker=self.dynamic_broker,
            node_defaults=defaults,
        )

    def key(self, name: str) -> Key | None:
        """Returns the row of a key, also for `listener.name.X.KEY`. Returns None for an unknown key."""
        key = self.keys.get(name)
        if key is None and name.startswith(_LISTENER_PREFIX):
            return self.keys.get(_base_name(name))
        return key

    def get(self, name: str) -> str | None:
        """Returns the text that is set for `name`, even if the key is unknown. The order of precedence is: dynamic
        setting of this broker, dynamic setting of all brokers, setting in the file."""
        for source in (self.dynamic_broker, self.dynamic_default, self.static):
            if name in source:
                return source[name]
        return None

    def is_set(self, name: str) -> bool:
        return self.get(name) is not None

    def value(self, name: str) -> Value:
        """Returns the value in effect: the value that is set, as the constructor parsed it, or the default."""
        if name in self._values:
            return self._values[name]
        key = self.key(name)
        if key is None:
            raise KeyError(name)
        return self._default(key)

    def _default(self, key: Key) -> Value:
        text = self.node_defaults.get(key.name)
        return default(key) if text is None else parse(key, text)

    def notes(self) -> Iterator[str]:
        """Yields a line for each setting that is unknown, was removed from Kafka, or has no effect in kafkacore."""
        for name in self.static:
            yield from self.note(name)
        yield from relations.notes(self)

    def note(self, name: str) -> Iterator[str]:
        """Yields the line about one setting, if there is one."""
        key = self.key(name)
        if key is None:
            yield self.keys.unknown(name)
        elif key.generation == "3.9" and not self.zookeeper_mode:
            yield f"{name}: removed in Kafka 4.0, has no effect in KRaft mode"
        elif not key.honoured:
            yield f"{name}: valid, but has no effect here: {self.keys.reason(key.name)}"
        elif name != key.name and key.name not in _OF_EACH_LISTENER:
            yield f"{name}: valid, but has no effect here: {_of_no_listener(key.name)}"
        elif name != key.name and not any(name == _of_listener(each.listener, key.name) for each in self.listeners):
            yield f"{name}: has no effect: `listeners` has no listener of that name (a key names it in lower case)"

    # -- values that depend on several keys

    @cached_property
    def node_id(self) -> int:
        return self._int("node.id")

    @cached_property
    def process_roles(self) -> frozenset[str]:
        """The roles: `broker`, `controller` or both. Empty in ZooKeeper mode."""
        return frozenset(self._list("process.roles"))

    @cached_property
    def log_dirs(self) -> tuple[str, ...]:
        """The directories in log.dirs, or log.dir if log.dirs is not set."""
        given = self._list("log.dirs") if self.is_set("log.dirs") else self._list("log.dir")
        return tuple(path for path in dict.fromkeys(given) if path)

    @cached_property
    def metadata_log_dir(self) -> str:
        return self.get("metadata.log.dir") or self.log_dirs[0]

    @cached_property
    def metadata_log_segment_size_bytes(self) -> int:
        """The value of metadata.log.segment.bytes, or of the internal key with which tests set smaller segments than
        Kafka allows."""
        internal = self.internal_metadata_log_segment_bytes
        return self.metadata_log_segment_bytes if internal is None else internal

    @cached_property
    def all_log_dirs(self) -> tuple[str, ...]:
        """Every directory that a node formats, locks and loads: those in log.dirs, and metadata.log.dir, without
        duplicates."""
        return tuple(dict.fromkeys((*self.log_dirs, self.metadata_log_dir)))

    @cached_property
    def cordoned_log_dirs(self) -> tuple[str, ...]:
        """The directories in log.dirs that take no new replicas (KIP-1066). `*` stands for all of them."""
        given = self._list("cordoned.log.dirs")
        return self.log_dirs if "*" in given else given

    @cached_property
    def log_retention_ms(self) -> int:
        """The retention time in milliseconds. -1 means for ever."""
        ms = self._first_ms(
            ("log.retention.ms", 1), ("log.retention.minutes", _MS_OF_A_MINUTE), ("log.retention.hours", _MS_OF_AN_HOUR)
        )
        return max(ms, -1)

    @cached_property
    def log_roll_ms(self) -> int:
        return self._first_ms(("log.roll.ms", 1), ("log.roll.hours", _MS_OF_AN_HOUR))

    @cached_property
    def log_roll_jitter_ms(self) -> int:
        return self._first_ms(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _MS_OF_AN_HOUR))

    @cached_property
    def log_flush_interval_ms(self) -> int:
        return self._first_ms(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1))

    @cached_property
    def num_replica_alter_log_dirs_threads(self) -> int:
        return (
            self._int("num.replica.alter.log.dirs.threads")
            if self.is_set("num.replica.alter.log.dirs.threads")
            else len(self.log_dirs)
        )

    @cached_property
    def controller_quorum_voters(self) -> tuple[Voter, ...]:
        return tuple(map(parse_voter, self._list("controller.quorum.voters")))

    @cached_property
    def controller_quorum_bootstrap_servers(self) -> tuple[Address, ...]:
        return tuple(map(parse_address, self._list("controller.quorum.bootstrap.servers")))

    @cached_property
    def max_connections_per_ip_overrides(self) -> dict[str, int]:
        """The number of allowed connections by host name or address."""
        return parse_limits(str(self.value("max.connections.per.ip.overrides")))

    # -- listeners

    def of_listener(self, listener: str, name: str) -> int:
        """Returns the listener's own value (listener.name.X.KEY). If there is none, returns the broker's value."""
        own = _of_listener(listener, name)
        return self._int(own if self.is_set(own) else name)

    def has_own_limits(self, listener: str) -> bool:
        return any(self.is_set(_of_listener(listener, name)) for name in _OF_EACH_LISTENER)

    @cached_property
    def controller_listener_names(self) -> tuple[str, ...]:
        """The names of the listeners of controllers. Brokers connect to the first one."""
        value = self.value("controller.listener.names")
        given = value if isinstance(value, tuple) else str(value or "").split(",")
        return tuple(name.strip() for name in given if name.strip())

    @cached_property
    def listener_security_protocol_map(self) -> dict[str, str]:
        """The security protocol by listener name. Includes the entries that Kafka adds to the default for controller
        listeners."""
        protocols = parse_protocol_map(str(self.value("listener.security.protocol.map")))
        if self.zookeeper_mode or self.is_set("listener.security.protocol.map"):
            return protocols
        return with_controller_listeners(protocols, self._list("listeners"), self.controller_listener_names)

    @cached_property
    def listeners(self) -> tuple[Endpoint, ...]:
        protocols = self.listener_security_protocol_map
        return parse_endpoints("listeners", self._list("listeners"), protocols, distinct_ports=True)

    @cached_property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        return tuple(endpoint for endpoint in self.listeners if endpoint.listener in self.controller_listener_names)

    @cached_property
    def control_plane_listener(self) -> Endpoint | None:
        """The listener of control.plane.listener.name (KIP-291), which only a broker in ZooKeeper mode has."""
        name = self.get("control.plane.listener.name")
        return next(
            (endpoint for endpoint in self.listeners if name and endpoint.listener == name.strip().upper()), None
        )

    @cached_property
    def data_plane_listeners(self) -> tuple[Endpoint, ...]:
        """The listeners for clients and brokers. Listeners of a controller or of the control plane are not included."""
        others = (*self.controller_listeners, self.control_plane_listener)
        return tuple(endpoint for endpoint in self.listeners if endpoint not in others)

    @cached_property
    def advertised_listeners(self) -> tuple[Endpoint, ...]:
        """The endpoints to which clients and brokers connect. A host is None if `listeners` has the wildcard address.

        During a migration from ZooKeeper, the control plane's listener is included (KAFKA-17788).
        """
        migrating = self.zookeeper_mode and self.zookeeper_metadata_migration_enable
        kept = self.control_plane_listener if migrating else None
        return tuple(
            endpoint
            for endpoint in self._all_advertised
            if endpoint.listener not in self.controller_listener_names or (kept and endpoint.listener == kept.listener)
        )

    @cached_property
    def advertised_controller_listeners(self) -> tuple[Endpoint, ...]:
        """The endpoints that the controller registers (KIP-853), in the order of controller.listener.names.

        For each name, the first source with an endpoint decides: advertised.listeners, then controller.quorum.voters,
        then `listeners`. The voters apply only to the first name, and only if `listeners` has the wildcard address.
        """
        advertised = (
            {endpoint.listener: endpoint for endpoint in self._all_advertised}
            if self.is_set("advertised.listeners")
            else {}
        )
        bound = {endpoint.listener: endpoint for endpoint in self.controller_listeners}
        voters = {voter.node_id: voter.address for voter in self.controller_quorum_voters}
        made: list[Endpoint] = []
        for position, name in enumerate(self.controller_listener_names):
            endpoint = advertised.get(name) or bound.get(name)
            if endpoint is None:
                continue
            if name not in advertised and endpoint.host in (None, "0.0.0.0"):
                endpoint = endpoint._replace(host=None)
                voter = voters.get(self.node_id)
                if position == 0 and voter is not None:
                    endpoint = endpoint._replace(host=voter.host, port=voter.port)
            made.append(endpoint)
        return tuple(made)

    @cached_property
    def inter_broker_listener_name(self) -> str:
        """The value of inter.broker.listener.name. If this key is not set, the value of
        security.inter.broker.protocol."""
        if not self.is_set("inter.broker.listener.name"):
            return str(self.value("security.inter.broker.protocol"))
        name = str(self.value("inter.broker.listener.name")).upper()
        if self.is_set("security.inter.broker.protocol"):
            raise ConfigError(
                "inter.broker.listener.name", name, "security.inter.broker.protocol is also set: set only one of them"
            )
        if name not in self.listener_security_protocol_map:
            raise ConfigError("inter.broker.listener.name", name, "must be in listener.security.protocol.map")
        return name

    @cached_property
    def inter_broker_security_protocol(self) -> str:
        return self.listener_security_protocol_map.get(self.inter_broker_listener_name, self.inter_broker_listener_name)

    @cached_property
    def _all_advertised(self) -> tuple[Endpoint, ...]:
        if not self.is_set("advertised.listeners"):
            return self.listeners
        entries = self._list("advertised.listeners")
        return parse_endpoints(
            "advertised.listeners", entries, self.listener_security_protocol_map, distinct_ports=False
        )

    # -- DescribeConfigs

    def synonyms(self, name: str) -> list[Synonym]:
        """Returns the source of the value of `name`, and the sources that this source overrides, in order of precedence
        (KIP-226)."""
        names = _synonym_names(name)
        key = self.key(name)
        sensitive = key is None or key.type == "password"
        found = [
            Synonym(each, None if sensitive else source[each], origin)
            for source, origin in (
                (self.dynamic_broker, Source.DYNAMIC_BROKER_CONFIG),
                (self.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
                (self.static, Source.STATIC_BROKER_CONFIG),
            )
            for each in names
            if each in source
        ]
        for each in names:
            default_key = self.keys.get(each)
            if default_key is not None and default_key.default is not None and not default_key.dynamic_only:
                text = None if sensitive else render(self._default(default_key))
                found.append(Synonym(each, text, Source.DEFAULT_CONFIG))
        while found and found[0].name != name:
            found.pop(0)
        return found

    def describe(self, name: str) -> Described:
        """Returns the entry of DescribeConfigs for `name`. The value of an unknown key is hidden, as secrets are."""
        key = self.key(name)
        sensitive = key is None or key.type == "password"
        synonyms = self.synonyms(name)
        return Described(
            name=name,
            value=None if sensitive else render(self.value(name)),
            source=synonyms[0].source if synonyms else Source.DEFAULT_CONFIG,
            sensitive=sensitive,
            # As in Kafka, a key with a listener's prefix is shown as read-only, although a broker accepts changes of
            # such a key.
            read_only=name not in self.keys or not self.keys[name].dynamic,
            type_id=TYPE_IDS[key.type] if key is not None else 0,
            synonyms=tuple(synonyms),
            documentation=self.keys.documentation(name) if key is not None else "",
        )

    def described_names(self) -> list[str]:
        """Returns the names that DescribeConfigs of this broker shows: every key that is set, and every other key that
        is not internal."""
        absent = "4.3" if self.zookeeper_mode else "3.9"
        shown = dict.fromkeys(
            key.name for key in self.keys if not (key.internal or key.dynamic_only or key.generation == absent)
        )
        shown |= dict.fromkeys((*self.static, *self.dynamic_default, *self.dynamic_broker))
        return list(shown)

    # -- plain values

    def _int(self, name: str) -> int:
        value = self.value(name)
        assert isinstance(value, int)
        return value

    def _list(self, name: str) -> tuple[str, ...]:
        value = self.value(name)
        if isinstance(value, tuple):
            return value
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else ()

    def _first_ms(self, *names: tuple[str, int]) -> int:
        """Returns the value, in milliseconds, of the first of these keys that is set."""
        for name, ms in names:
            value = self.value(name)
            if isinstance(value, int):
                return value * ms
        raise KeyError(names[0][0])


def _with_node_id_synonym(properties: Mapping[str, str]) -> dict[str, str]:
    """Copies broker.id to node.id, or node.id to broker.id, if only one of them is set."""
    made = dict(properties)
    for name, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if name in properties and other not in properties:
            made[other] = properties[name]
    return made


def _of_listener(listener: str, name: str) -> str:
    return f"{_LISTENER_PREFIX}{listener.lower()}.{name}"


def _of_no_listener(name: str) -> str:
    if name == "num.network.threads":
        return "the processors of a process serve all of its listeners"
    return f"{name} applies to the whole broker"


def _base_name(name: str) -> str:
    """Returns KEY of `listener.name.X.KEY` or of `listener.name.X.MECHANISM.KEY`."""
    _, _, base = name.removeprefix(_LISTENER_PREFIX).partition(".")
    return next((known for known in _OF_A_MECHANISM if base.endswith(known)), base)


def _synonym_names(name: str) -> tuple[str, ...]:
    for group in _SYNONYMS:
        if name in group:
            return group
    if name == "log.flush.interval.ms":
        return (name, "log.flush.scheduler.interval.ms")
    return (name, _base_name(name)) if name.startswith(_LISTENER_PREFIX) else (name,)
