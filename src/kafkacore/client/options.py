"""Kafka's client keys. The client honours some keys, which have their defaults here. It ignores other keys, and refuses
the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kafkacore._fast.codec.compression import NAMES as CODECS
from kafkacore.client.errors import OptionError

LOG: Final = logging.getLogger("kafkacore.client")
_MOST: Final = (1 << 31) - 1


class Key(NamedTuple):
    """An option: its default, the function that parses its text (and raises ValueError for an invalid one), and a
    description of the allowed values."""

    default: Any
    read: Callable[[str], Any]
    allowed: str


def _number(default: int, lowest: int = 0, highest: int = _MOST) -> Key:
    def read(text: str) -> int:
        value = int(text)
        if not lowest <= value <= highest:
            raise ValueError
        return value

    return Key(default, read, f"a number from {lowest} to {highest}")


def _one_of(default: str, *values: str) -> Key:
    def read(text: str) -> str:
        if text.lower() not in values:
            raise ValueError
        return text.lower()

    return Key(default, read, "one of " + ", ".join(values))


def _upper(default: str, *values: str) -> Key:
    def read(text: str) -> str:
        if text.upper() not in values:
            raise ValueError
        return text.upper()

    return Key(default, read, "one of " + ", ".join(values))


def _flag(*, default: bool) -> Key:
    def read(text: str) -> bool:
        return {"true": True, "false": False}[text.strip().lower()]

    return Key(default, read, "true or false")


def _words(default: str | None = None) -> Key:
    return Key(default, str, "text")


def _acks(text: str) -> int:
    return {"all": -1, "-1": -1, "1": 1, "0": 0}[text.lower()]


# The defaults are the same as in Apache Kafka 4.3, except where a comment says otherwise.
HONOURED: Final[dict[str, Key]] = {
    "bootstrap.servers": _words(),
    "client.id": _words("kafkacore"),
    "client.rack": _words(""),
    "request.timeout.ms": _number(30_000, 1),
    "default.api.timeout.ms": _number(60_000, 1),
    "retry.backoff.ms": _number(100),
    "retry.backoff.max.ms": _number(1_000),
    "reconnect.backoff.ms": _number(50),
    "reconnect.backoff.max.ms": _number(1_000),
    "socket.connection.setup.timeout.ms": _number(10_000, 1),
    "send.buffer.bytes": _number(131_072, -1),
    "receive.buffer.bytes": _number(1 << 20, -1),  # Kafka's 64 KiB would slow down a fast reader
    "metadata.max.age.ms": _number(300_000),
    # reading
    "fetch.min.bytes": _number(1),
    "fetch.max.bytes": _number(50 << 20, 1),
    "fetch.max.wait.ms": _number(500),
    "max.partition.fetch.bytes": _number(1 << 20, 1),
    "check.crcs": _flag(default=True),
    "isolation.level": _one_of("read_uncommitted", "read_uncommitted", "read_committed"),
    # writing
    "acks": Key(-1, _acks, "all: the producer is idempotent"),
    "enable.idempotence": _flag(default=True),
    "compression.type": _one_of("none", *CODECS),
    "compression.gzip.level": _number(-1, -1, 9),
    "compression.lz4.level": _number(9, 1, 17),
    "compression.zstd.level": _number(3, -131_072, 22),
    "batch.size": _number(1 << 18, 1),  # Kafka's 16 KiB suit single records, not whole columns
    "max.request.size": _number(1 << 20, 1),
    "delivery.timeout.ms": _number(120_000, 1),
    "partitioner.ignore.keys": _flag(default=False),
    "transactional.id": _words(),
    "transaction.timeout.ms": _number(60_000, 1),
    # security
    "security.protocol": _upper("PLAINTEXT", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "ssl.truststore.type": _upper("PEM", "PEM"),
    "ssl.truststore.location": _words(),
    "ssl.truststore.certificates": _words(),
    "ssl.keystore.type": _upper("PEM", "PEM"),
    "ssl.keystore.location": _words(),
    "ssl.key.password": _words(),
    "ssl.endpoint.identification.algorithm": _one_of("https", "https", ""),
    "sasl.mechanism": _upper("PLAIN", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    "sasl.jaas.config": _words(),
}

# Keys that do not decide which records are read or written. The client lacks the feature that they configure, or works
# without the setting.
IGNORED: Final = frozenset(
    {
        "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter", "buffer.memory",
        "client.dns.lookup", "connections.max.idle.ms", "enable.auto.commit", "enable.metrics.push",
        "exclude.internal.topics", "group.id", "group.instance.id", "group.protocol", "group.remote.assignor",
        "heartbeat.interval.ms", "linger.ms", "max.block.ms", "max.in.flight.requests.per.connection",
        "max.poll.interval.ms", "max.poll.records", "metadata.max.idle.ms", "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
        "metrics.sample.window.ms", "partition.assignment.strategy", "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms", "retries", "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms", "auto.offset.reset",
    }
)  # fmt: skip

# Keys that name Java classes or files, or a kind of authentication that the client does not support.
REFUSED: Final[dict[str, str]] = {
    "interceptor.classes": "interceptors are Java classes",
    "key.serializer": "keys are bytes",
    "value.serializer": "values are bytes",
    "key.deserializer": "keys are bytes",
    "value.deserializer": "values are bytes",
    "partitioner.class": "partitioners are Java classes; give a partition to each row instead",
    "security.providers": "security providers are Java classes",
    "ssl.engine.factory.class": "engine factories are Java classes",
    "ssl.keystore.certificate.chain": "give a PEM file in ssl.keystore.location",
    "ssl.keystore.key": "give a PEM file in ssl.keystore.location",
    "ssl.keystore.password": "a PEM file has no password of its own; ssl.key.password is the password of its key",
    "ssl.truststore.password": "a PEM file has no password",
    "transaction.two.phase.commit.enable": "two-phase commit is not supported",
}


class Options:
    """The values of all honoured keys. Keys that are not given have their defaults."""

    def __init__(self, given: Mapping[str, object]) -> None:
        """Raises OptionError. Logs a warning for each key that is ignored or unknown."""
        self._values = {name: key.default for name, key in HONOURED.items()}
        for name, value in given.items():
            kind = kind_of(name)
            if kind == "refused":
                raise OptionError(f"{name} is not supported: {why_refused(name)}")
            if kind != "honoured":
                LOG.warning("the option %s is %s, so it has no effect", name, kind)
                continue
            self._values[name] = _read(name, value)
        self.given = frozenset(given)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def with_given(self, given: Mapping[str, object]) -> Options:
        """Returns these options, overridden by `given`. Raises OptionError."""
        made = Options(given)
        for name in self.given - made.given:
            if name in self._values:
                made._values[name] = self._values[name]
        made.given |= self.given
        return made


def kind_of(name: str) -> str:
    """Returns "honoured", "ignored", "refused" or "unknown"."""
    if name in HONOURED:
        return "honoured"
    if name in IGNORED:
        return "ignored"
    return "refused" if name in REFUSED or name.startswith(("sasl.", "ssl.")) else "unknown"


def why_refused(name: str) -> str:
    """Returns the reason why a key is refused, for a message."""
    return REFUSED.get(name) or "PEM files, and the mechanisms PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, are supported"


def _read(name: str, value: object) -> Any:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        return HONOURED[name].read(text.strip())
    except (ValueError, KeyError):
        raise OptionError(f"{name} is {text!r}, but must be {HONOURED[name].allowed}") from None


def addresses(servers: str) -> list[tuple[str, int]]:
    """Parses the hosts and ports of bootstrap.servers. Raises OptionError."""
    found = []
    for each in filter(None, (part.strip() for part in servers.split(","))):
        host, _, port = each.rpartition("://")[2].rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise OptionError(f"bootstrap.servers has {each!r}, but must have host:port entries, separated by commas")
        found.append((host, int(port)))
    if not found:
        raise OptionError("bootstrap.servers is empty, but must have host:port entries, separated by commas")
    return found
