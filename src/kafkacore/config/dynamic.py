"""Changes the configuration of a running broker (KIP-226).

A broker checks a change in a request and may refuse it. Stored settings come from the metadata, which may contain
anything. A broker cannot refuse them, so it ignores the settings that it cannot use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kafkacore.config.broker import BrokerConfig
from kafkacore.config.errors import ConfigError
from kafkacore.config.keys import Key
from kafkacore.config.values import HIDDEN, parse

LOG: Final = logging.getLogger("kafkacore.config")

# Only a listener can have these keys (listener.name.X.KEY).
_OF_A_LISTENER: Final = frozenset(
    "ssl." + name
    for name in (
        "key.password", "keystore.certificate.chain", "keystore.key", "keystore.location", "keystore.password",
        "keystore.type", "truststore.certificates", "truststore.location", "truststore.password", "truststore.type",
    )
)  # fmt: skip
_OF_EVERY_BROKER: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
_OF_CONNECTIONS: Final = ("max.connections", "max.connection.creation.rate")
_THREADS: Final = (
    "num.io.threads", "num.network.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir",
    "background.threads", "log.cleaner.threads",
)  # fmt: skip
# Apache Kafka opens and closes listeners at run time. kafkacore's nodes keep the listeners with which they started.
_OF_A_START: Final = ("listeners", "listener.security.protocol.map")


# Apache Kafka can change these keys while a broker runs. kafkacore cannot.
_AT_A_START: Final = {
    "num.network.threads": "the nodes of a process share its processors: set it in server.properties and restart",
}


class DynamicConfigError(ConfigError):
    """A change that a running broker refuses. The message is Kafka's, if Kafka has one."""

    def __init__(self, problem: str, names: Iterable[str]) -> None:
        super().__init__(", ".join(names), None, problem)

    def __str__(self) -> str:
        return f"{self.allowed}: [{self.key}]" if self.key else self.allowed


def check_change(config: BrokerConfig, values: Mapping[str, str], *, of_one: bool) -> BrokerConfig:
    """Returns the configuration with `values` as the dynamic settings of one broker (`of_one`) or of all brokers.

    Raises ConfigError.
    """
    for problem, wrong in _REFUSED:
        names = [name for name in values if wrong(config, name)]
        if names:
            raise DynamicConfigError(problem, names)
    for name, text in values.items():
        key = config.key(name)
        if key is not None:
            parse(key, text)
    if not of_one and (names := [name for name in values if _per_broker(config, name)]):
        raise DynamicConfigError(
            "Cannot update these configs at default cluster level, broker id must be specified", names
        )
    _check_start(config, values)
    _check_connections(config, values)
    _check_sampled_log(config, values)
    made = config.with_dynamic(broker=values) if of_one else config.with_dynamic(default=values)
    _check_threads(config, made)
    return made


def adopted(
    config: BrokerConfig, default: Mapping[str, str], broker: Mapping[str, str], *, tell: bool = True
) -> BrokerConfig:
    """Returns the configuration with the stored settings for all brokers and for this broker.

    Never fails, because a broker cannot refuse metadata. Leaves out each setting that is unusable or contradicts other
    settings, and logs it if `tell` is true. Never logs secrets.
    """
    usable_default = _usable(config, default, of_one=False, tell=tell)
    usable_broker = _usable(config, broker, of_one=True, tell=tell)
    try:
        made = _consistent(config, usable_default, usable_broker, tell=tell)
    except ValueError as error:  # any error of a parser; a node must start even with unusable settings
        if tell:
            LOG.warning(
                "the dynamic configuration is not applied, and the node keeps the former configuration: %s", error
            )
        return config
    if made.dynamic_default == config.dynamic_default and made.dynamic_broker == config.dynamic_broker:
        return config
    if tell:
        _tell(config, made)
    return made


def _consistent(
    config: BrokerConfig, default: Mapping[str, str], broker: Mapping[str, str], *, tell: bool
) -> BrokerConfig:
    """Returns the configuration with these dynamic settings, or with as many of them as do not contradict each other.
    If two settings contradict each other, a setting of all brokers has precedence over a setting of one broker, as in
    Apache Kafka.
    """
    if default == config.dynamic_default and broker == config.dynamic_broker:
        return config
    try:
        return config.with_dynamic(default=default, broker=broker)
    except ValueError:
        made = config.with_dynamic(default={}, broker={})
    made = _with_most(made, sorted(default.items()), of_one=False, tell=tell)
    return _with_most(made, sorted(broker.items()), of_one=True, tell=tell)


def _with_most(made: BrokerConfig, settings: list[tuple[str, str]], *, of_one: bool, tell: bool) -> BrokerConfig:
    """Returns the configuration with as many more settings as fit. Halves the list until it finds those that do not
    fit, because checking a configuration takes time in proportion to its size."""
    try:
        if of_one:
            return made.with_dynamic(broker={**made.dynamic_broker, **dict(settings)})
        return made.with_dynamic(default={**made.dynamic_default, **dict(settings)})
    except ValueError as error:
        if len(settings) == 1:
            if tell:
                LOG.warning("%s is stored as a dynamic setting and ignored: %s", settings[0][0], error)
            return made
    middle = len(settings) // 2
    made = _with_most(made, settings[:middle], of_one=of_one, tell=tell)
    return _with_most(made, settings[middle:], of_one=of_one, tell=tell)


def _tell(was: BrokerConfig, made: BrokerConfig) -> None:
    names = dict.fromkeys((*was.dynamic_default, *was.dynamic_broker, *made.dynamic_default, *made.dynamic_broker))
    for name in names:
        text = made.get(name)
        if text == was.get(name):
            continue
        key = made.key(name)
        shown = HIDDEN if text is not None and (key is None or key.type == "password") else text
        LOG.info("%s is now %s", name, "its default" if shown is None else shown)
        for note in made.note(name) if text is not None else ():
            LOG.warning("%s", note)
        if name in _AT_A_START:
            LOG.warning("%s has no effect: %s", name, _AT_A_START[name])


def _usable(config: BrokerConfig, values: Mapping[str, str], *, of_one: bool, tell: bool) -> dict[str, str]:
    made = {}
    for name, text in values.items():
        problem = _problem(config, name, text, of_one=of_one)
        if problem is None:
            made[name] = text
        elif tell:
            LOG.warning("%s is stored as a dynamic setting and ignored: %s", name, problem)
    return made


def _problem(config: BrokerConfig, name: str, text: str, *, of_one: bool) -> str | None:
    for problem, wrong in _REFUSED:
        if wrong(config, name):
            return problem
    if not of_one and _per_broker(config, name):
        return "it can only be set for one broker"
    try:
        key = config.key(name)
        if key is not None:
            parse(key, text)
        _check_start(config, {name: text})
        _check_connections(config, {name: text})
        _check_sampled_log(config, {name: text})
    except ValueError as error:
        return str(error)
    return None


def _read_only(config: BrokerConfig, name: str) -> bool:
    """Returns whether a running broker refuses changes of the key `name`. The same key with a listener's prefix
    (listener.name.X.KEY) can change."""
    key = _known(config, name)
    return key is not None and not key.dynamic


def _without_listener(config: BrokerConfig, name: str) -> bool:
    return name in _OF_A_LISTENER


def _per_broker(config: BrokerConfig, name: str) -> bool:
    if name.startswith("listener.name."):
        base = config.key(name)
        return base is None or base.name not in _OF_EVERY_BROKER
    key = _known(config, name)
    return key is not None and key.mode == "per-broker"


def _known(config: BrokerConfig, name: str) -> Key | None:
    """Returns the key, or None for an unknown key and for a key of another release. As in Kafka, such keys can be
    stored."""
    key = config.keys.get(name)
    absent = "4.3" if config.zookeeper_mode else "3.9"
    return None if key is None or key.generation == absent else key


_REFUSED: Final[tuple[tuple[str, Callable[[BrokerConfig, str], bool]], ...]] = (
    ("Cannot update these configs dynamically", _read_only),
    (
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        _without_listener,
    ),
)


def _check_start(config: BrokerConfig, values: Mapping[str, str]) -> None:
    names = [name for name in _OF_A_START if name in values and values[name] != config.static.get(name)]
    if names:
        raise DynamicConfigError(
            "A running broker keeps its listeners: set this in server.properties and restart", names
        )


def _check_connections(config: BrokerConfig, values: Mapping[str, str]) -> None:
    for name, text in values.items():
        key = config.key(name)
        if key is not None and key.name in _OF_CONNECTIONS and _number(key, text) <= 0:
            raise DynamicConfigError(f"Invalid {key.name} {text}", ())


def _number(key: Key, text: str) -> int:
    value = parse(key, text)
    assert isinstance(value, int)
    return value


def _check_sampled_log(config: BrokerConfig, values: Mapping[str, str]) -> None:
    name = "sampled.request.log.every"
    if name in values and _number(config.keys[name], values[name]) and not config.sampled_request_log_file:
        raise DynamicConfigError(
            "This broker has no file for sampled requests: set sampled.request.log.file and restart",
            [name],
        )


def _check_threads(config: BrokerConfig, made: BrokerConfig) -> None:
    for name in _THREADS:
        was, now = config.value(name), made.value(name)
        assert isinstance(was, int)
        assert isinstance(now, int)
        allowed = None
        if now == was:
            continue
        if now < 1:
            allowed = "value should be at least 1"
        elif now < was // 2:
            allowed = f"value should be at least half the current value {was}"
        elif now > was * 2:
            allowed = f"value should not be greater than double the current value {was}"
        if allowed is not None:
            problem = f"Dynamic thread count update validation failed for {name}={now}, {allowed}"
            raise DynamicConfigError(problem, ())
