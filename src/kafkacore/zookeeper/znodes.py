"""The contents of the znodes of Apache Kafka 3.9, as JSON in bytes. `encode_x` makes a znode's content, and `decode_x`
reads it.

A decoder raises `MalformedZnodeError` for content that Kafka does not write: text that is not JSON, a missing field, a
field of another type, or an unknown version. This can happen if an administrator has edited the znode.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from kafkacore._fast.base.uuid import Uuid

INT32: Final = (-(1 << 31), (1 << 31) - 1)
INT64: Final = (-(1 << 63), (1 << 63) - 1)
MAX_STRING_BYTES: Final = 32_767  # the longest string that a request to a broker can contain
MAX_PARTITION: Final = 199_999  # the znode of a topic has no room for more partitions (jute.maxbuffer)
NO_LEADER: Final = -1
LEADER_DURING_DELETE: Final = -2  # in LeaderAndIsr and UpdateMetadata only
RECOVERED: Final = 0
RECOVERING: Final = 1


class MalformedZnodeError(ValueError):
    """The content of a znode cannot be read. The message explains the reason, without the znode's path."""


# --- decoding ---


def _parsed(data: bytes | None) -> dict[str, Any]:
    try:
        value = orjson.loads(data or b"")
    except orjson.JSONDecodeError as error:
        raise MalformedZnodeError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise MalformedZnodeError(f"a JSON object was expected, not {type(value).__name__}")
    return value


def _int(found: Mapping[str, Any], key: str, bounds: tuple[int, int] = INT32, default: int | None = None) -> int:
    value = found.get(key, default)
    if type(value) is not int or not bounds[0] <= value <= bounds[1]:
        raise MalformedZnodeError(f"{key} must be an integer from {bounds[0]} to {bounds[1]}, not {_short(value)}")
    return value


def _text(found: Mapping[str, Any], key: str) -> str:
    return _string(found.get(key), key)


def _string(value: Any, what: str) -> str:
    if not isinstance(value, str) or len(value.encode()) > MAX_STRING_BYTES:
        raise MalformedZnodeError(f"{what} must be a string of at most {MAX_STRING_BYTES} bytes, not {_short(value)}")
    return value


def _decimal(found: Mapping[str, Any], key: str) -> int:
    """Reads a 64-bit number from a string, as Kafka writes times and producer ids."""
    value = found.get(key)
    try:
        number = int(value) if isinstance(value, str | int) and len(str(value)) <= 20 else None
    except ValueError:
        number = None
    if number is None or isinstance(value, bool) or not INT64[0] <= number <= INT64[1]:
        raise MalformedZnodeError(f"{key} must be a number in a string, not {_short(value)}")
    return number


def _list(found: Mapping[str, Any], key: str) -> list[Any]:
    value = found.get(key)
    if not isinstance(value, list):
        raise MalformedZnodeError(f"{key} must be a list, not {_short(value)}")
    return value


def _mapping(found: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = found.get(key, {})
    if not isinstance(value, dict):
        raise MalformedZnodeError(f"{key} must be an object, not {_short(value)}")
    return value


def _brokers(value: Any, what: str) -> list[int]:
    """Reads a list of broker ids."""
    if not isinstance(value, list) or not all(type(each) is int and 0 <= each <= INT32[1] for each in value):
        raise MalformedZnodeError(f"{what} must be a list of broker ids, not {_short(value)}")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _number(text: str, what: str) -> int:
    """Reads a partition number that is a key of a JSON object."""
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > MAX_PARTITION:
        raise MalformedZnodeError(f"{what} must be a partition number up to {MAX_PARTITION}, not {_short(text)}")
    return int(text)


# --- /controller, /controller_epoch ---


class Controller(NamedTuple):
    broker_id: int
    kraft_epoch: int  # -1 unless a controller of KRaft has taken over


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    return orjson.dumps(
        {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
    )


def decode_controller(data: bytes | None) -> Controller:
    found = _parsed(data)
    return Controller(_int(found, "brokerid"), _int(found, "kraftControllerEpoch", default=-1))


def encode_controller_epoch(epoch: int) -> bytes:
    return b"%d" % epoch


def decode_controller_epoch(data: bytes | None) -> int:
    text = (data or b"").strip()
    # The next controller must be able to raise the epoch.
    if not re.fullmatch(rb"-?[0-9]{1,10}", text) or not INT32[0] <= int(text) < INT32[1]:
        raise MalformedZnodeError(f"the controller epoch must be a number below {INT32[1]}, not {_short(data)}")
    return int(text)


# --- /brokers/ids/ID ---


class Endpoint(NamedTuple):
    listener: str
    security_protocol: str
    host: str
    port: int


class BrokerRegistration(NamedTuple):
    """The registration of a broker. `features` maps a name to its lowest and highest supported level."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = {}
    jmx_port: int = -1
    timestamp_ms: int = 0
    version: int = 5


_DEFAULT_PROTOCOLS: Final = {name: name for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")}
_ENDPOINT: Final = re.compile(r"(?P<listener>[^:/]+)://(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:]*)):(?P<port>-?[0-9]{1,5})")


def encode_broker(registration: BrokerRegistration) -> bytes:
    """Encodes a registration as JSON. `registration.version` decides the format: 2, 4 (0.10.0) or 5 (2.7)."""
    version = registration.version
    plain = next((each for each in registration.endpoints if each.security_protocol == "PLAINTEXT"), None)
    value: dict[str, Any] = {
        "version": version,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "endpoints": [_connection_string(each) for each in registration.endpoints],
        "jmx_port": registration.jmx_port,
        "timestamp": str(registration.timestamp_ms),
    }
    if registration.rack is not None and version >= 3:
        value["rack"] = registration.rack
    if version >= 4:
        value["listener_security_protocol_map"] = {
            each.listener: each.security_protocol for each in registration.endpoints
        }
    if version >= 5:
        value["features"] = {
            name: {"min_version": low, "max_version": high} for name, (low, high) in registration.features.items()
        }
    return orjson.dumps(value)


def _connection_string(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def decode_broker(broker_id: int, data: bytes | None) -> BrokerRegistration:
    """Decodes a registration of version 1 to 5. Ignores unknown fields, as Kafka does."""
    found = _parsed(data)
    version = _int(found, "version")
    if version < 1:
        raise MalformedZnodeError(f"version {version} of a broker's registration is unknown")
    endpoints: tuple[Endpoint, ...]
    if version == 1:
        endpoints = (Endpoint("PLAINTEXT", "PLAINTEXT", _text(found, "host"), _int(found, "port")),)
    else:
        protocols = _mapping(found, "listener_security_protocol_map") or _DEFAULT_PROTOCOLS
        endpoints = tuple(_endpoint(each, protocols) for each in _list(found, "endpoints"))
    rack = None if found.get("rack") is None else _text(found, "rack")
    timestamp_ms = _decimal(found, "timestamp") if "timestamp" in found else 0
    return BrokerRegistration(
        broker_id, endpoints, rack, _supported_features(found), _int(found, "jmx_port"), timestamp_ms, version
    )


def _endpoint(text: Any, protocols: Mapping[str, Any]) -> Endpoint:
    match = _ENDPOINT.fullmatch(_string(text, "an endpoint"))
    if match is None:
        raise MalformedZnodeError(f"an endpoint must look like LISTENER://host:port, not {_short(text)}")
    protocol = protocols.get(match["listener"])
    if not isinstance(protocol, str) or protocol not in _DEFAULT_PROTOCOLS:
        raise MalformedZnodeError(f"the listener {match['listener']} has no known security protocol")
    return Endpoint(match["listener"], protocol, match["six"] or match["host"] or "", int(match["port"]))


def _supported_features(found: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    features = _mapping(found, "features")
    return {
        name: (_int(levels, "min_version"), _int(levels, "max_version"))
        for name in features
        for levels in (_mapping(features, name),)
    }


# --- /brokers/topics/TOPIC and the states of its partitions ---


class Assignment(NamedTuple):
    """The replicas of one partition. During a reassignment, `adding` and `removing` contain the difference
    (KIP-455)."""

    replicas: list[int]
    adding: Sequence[int] = ()
    removing: Sequence[int] = ()


class TopicAssignment(NamedTuple):
    topic_id: Uuid | None  # None before 2.8
    partitions: dict[int, Assignment]


def encode_topic(topic: TopicAssignment) -> bytes:
    value: dict[str, Any] = {
        "version": 3,
        "partitions": {str(number): each.replicas for number, each in topic.partitions.items()},
        "adding_replicas": {str(number): each.adding for number, each in topic.partitions.items() if each.adding},
        "removing_replicas": {str(number): each.removing for number, each in topic.partitions.items() if each.removing},
    }
    if topic.topic_id is not None:
        value["topic_id"] = str(topic.topic_id)
    return orjson.dumps(value)


def decode_topic(data: bytes | None) -> TopicAssignment:
    found = _parsed(data)
    topic_id = None
    if "topic_id" in found:
        try:
            topic_id = Uuid.parse(_text(found, "topic_id"))
        except ValueError as error:
            raise MalformedZnodeError(f"topic_id: {error}") from None
    if "partitions" not in found:
        raise MalformedZnodeError("partitions are missing")
    adding, removing = _mapping(found, "adding_replicas"), _mapping(found, "removing_replicas")
    return TopicAssignment(
        topic_id,
        {
            _number(number, "a key of partitions"): Assignment(
                _brokers(replicas, "replicas"),
                _brokers(adding.get(number, []), "adding_replicas"),
                _brokers(removing.get(number, []), "removing_replicas"),
            )
            for number, replicas in _mapping(found, "partitions").items()
        },
    )


class PartitionState(NamedTuple):
    """The content of `/brokers/topics/TOPIC/partitions/N/state`. The version of this znode is the partition epoch."""

    leader: int
    leader_epoch: int
    isr: list[int]
    controller_epoch: int
    leader_recovery_state: int = RECOVERED


def encode_states(states: Iterable[PartitionState]) -> list[bytes]:
    """Encodes many states at once. Formatting five integers is faster than a general encoder."""
    written: dict[tuple[int, ...], str] = {}  # many ISRs are equal
    encoded = []
    for leader, leader_epoch, isr, controller_epoch, recovery in states:
        key = tuple(isr)
        text = written.get(key)
        if text is None:
            text = written[key] = ",".join(map(str, isr))
        end = f',"leader_recovery_state":{recovery}}}' if recovery else "}"
        encoded.append(
            f'{{"controller_epoch":{controller_epoch},"leader":{leader},"version":1,'
            f'"leader_epoch":{leader_epoch},"isr":[{text}]{end}'.encode()
        )
    return encoded


def decode_state(data: bytes | None) -> PartitionState:
    found = _parsed(data)
    recovery = _int(found, "leader_recovery_state", (RECOVERED, RECOVERING), RECOVERED)
    return PartitionState(
        _int(found, "leader"),
        _int(found, "leader_epoch"),
        _brokers(found.get("isr"), "isr"),
        _int(found, "controller_epoch"),
        recovery,
    )


# --- /config ---


def encode_config(config: Mapping[str, str]) -> bytes:
    return orjson.dumps({"version": 1, "config": dict(config)})


def decode_config(data: bytes | None) -> dict[str, str]:
    """Decodes a configuration. No data means an empty configuration."""
    if not data:
        return {}
    config = _mapping(_parsed(data), "config")
    for key, value in config.items():
        if not isinstance(value, str):
            raise MalformedZnodeError(f"the value of {key} must be a string, not {_short(value)}")
    return config


def encode_config_change(entity_path: str) -> bytes:
    """Encodes the notification of a change. `entity_path` is a path such as `topics/one` or `users/alice/clients/two`,
    without `/config/`."""
    return orjson.dumps({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes | None) -> str:
    """Returns the entity's path in the notification of a change. Version 1 contains the type and the name
    separately."""
    found = _parsed(data)
    version = _int(found, "version")
    if version == 1:
        entity_type = _text(found, "entity_type")
        if entity_type not in {"topics", "clients"}:
            raise MalformedZnodeError(f"version 1 has no entity type {_short(entity_type)}")
        return f"{entity_type}/{_text(found, 'entity_name')}"
    if version == 2:
        return _text(found, "entity_path")
    raise MalformedZnodeError(f"version {version} of a configuration's change is unknown")


# --- notifications to the controller ---

TopicPartition = tuple[str, int]


def _encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    named = [{"topic": topic, "partition": number} for topic, number in partitions]
    return orjson.dumps({"version": 1, "partitions": named})


def _decode_partitions(data: bytes | None) -> list[TopicPartition]:
    return [_partition(each) for each in _list(_parsed(data), "partitions")]


def _partition(entry: Any) -> TopicPartition:
    if not isinstance(entry, dict):
        raise MalformedZnodeError(f"a partition must be an object, not {_short(entry)}")
    return _text(entry, "topic"), _int(entry, "partition", (0, INT32[1]))


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    return _encode_partitions(partitions)


def decode_isr_change(data: bytes | None) -> list[TopicPartition]:
    return _decode_partitions(data)


LOG_DIR_FAILURE: Final = 1


def encode_log_dir_event(broker_id: int) -> bytes:
    return orjson.dumps({"version": 1, "broker": broker_id, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(data: bytes | None) -> int:
    """Returns the id of the broker whose log directory failed."""
    return _int(_parsed(data), "broker")


# --- /admin ---


def encode_reassignments(reassignments: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    named = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for (topic, number), replicas in reassignments.items()
    ]
    return orjson.dumps({"version": 1, "partitions": named})


def decode_reassignments(data: bytes | None) -> dict[TopicPartition, list[int]]:
    """Decodes reassignments. If a partition has several entries, the last entry counts, as in Kafka."""
    return {_partition(each): _brokers(each.get("replicas"), "replicas") for each in _list(_parsed(data), "partitions")}


def encode_preferred_election(partitions: Iterable[TopicPartition]) -> bytes:
    return _encode_partitions(partitions)


def decode_preferred_election(data: bytes | None) -> list[TopicPartition]:
    return _decode_partitions(data)


# --- the cluster ---


def encode_cluster_id(cluster_id: str) -> bytes:
    return orjson.dumps({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    return _text(_parsed(data), "id")


class ProducerIdBlock(NamedTuple):
    broker_id: int
    first: int
    last: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return orjson.dumps(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_id_block(data: bytes | None) -> ProducerIdBlock:
    found = _parsed(data)
    block = ProducerIdBlock(_int(found, "broker"), _decimal(found, "block_start"), _decimal(found, "block_end"))
    if not 0 <= block.first <= block.last:
        raise MalformedZnodeError(f"a block of producer ids cannot go from {block.first} to {block.last}")
    return block


class Features(NamedTuple):
    """The finalized features. `version` is 1 below metadata.version 3.3-IV0, and otherwise 2."""

    version: int
    is_enabled: bool
    levels: Mapping[str, int] = {}


def encode_features(features: Features) -> bytes:
    def levels(level: int) -> dict[str, int]:
        return {"max_version_level": level} | ({"min_version_level": level} if features.version == 1 else {})

    named = {name: levels(level) for name, level in features.levels.items()}
    return orjson.dumps({"version": features.version, "status": int(features.is_enabled), "features": named})


def decode_features(data: bytes | None) -> Features:
    found = _parsed(data)
    version, status = _int(found, "version"), _int(found, "status")
    if version not in {1, 2}:
        raise MalformedZnodeError(f"version {version} of the features is unknown")
    if status not in {0, 1}:
        raise MalformedZnodeError(f"status {status} of the features is unknown")
    if "features" not in found:
        raise MalformedZnodeError("features are missing")
    features = _mapping(found, "features")
    return Features(version, status == 1, {name: _level(_mapping(features, name), version) for name in features})


def _level(levels: Mapping[str, Any], version: int) -> int:
    level = _int(levels, "max_version_level", (1, 32_767))
    if version == 1:
        _int(levels, "min_version_level", (1, level))
    return level


class Migration(NamedTuple):
    kraft_controller_id: int
    kraft_controller_epoch: int
    kraft_metadata_offset: int
    kraft_metadata_epoch: int


def decode_migration(data: bytes | None) -> Migration:
    found = _parsed(data)
    if (version := _int(found, "version")) != 0:
        raise MalformedZnodeError(f"version {version} of a migration is unknown")
    return Migration(
        _int(found, "kraft_controller_id"),
        _int(found, "kraft_controller_epoch"),
        _int(found, "kraft_metadata_offset", INT64),
        _int(found, "kraft_metadata_epoch"),
    )
