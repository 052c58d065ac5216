"""Decodes the records of Kafka's own topics, and shows keys and values as kafka-dump-log's decoders do.

As in Kafka, the dump shows an error in place of the payload of an unreadable record, and continues.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from kafkacore._fast.base import text
from kafkacore._fast.record.batch import ControlRecordType, InvalidRecordError, Record
from kafkacore._fast.schema import tables
from kafkacore.metadata.records import RECORD_TYPES, MetadataError, decode_framed
from kafkacore.protocol.errors import KafkaError
from kafkacore.protocol.message_json import to_json
from kafkacore.protocol.messages import Message, message_class
from kafkacore.raft.control import control_message

CONTROL_TYPE: Final = "controlType"  # the name shown for a control record of an unknown type


class Decoded(NamedTuple):
    """The parts of a record to show. A part that is None is not shown. A str is shown unchanged, and any other value as
    JSON."""

    key: Any
    value: Any


Decoder = Callable[[Record], Decoded]


class UndecodableError(KafkaError):
    """The chosen decoder cannot read the record, for example because the record belongs to another topic."""


# --- Java classes ---------------------------------------------------------------------------------------------------


def _string(data: bytes) -> str:
    return text.replaced(data).decode()


def _integer(data: bytes) -> int:
    return int(_INTEGER.unpack_from(data)[0])


def _long(data: bytes) -> int:
    return int(_LONG.unpack_from(data)[0])


_INTEGER: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
# Apache Kafka's own decoders, except DefaultDecoder, which shows only the address of a Java array.
_CLASSES: Final[dict[str, Callable[[bytes], object]]] = {
    "org.apache.kafka.tools.api.StringDecoder": _string,
    "org.apache.kafka.tools.api.IntegerDecoder": _integer,
    "org.apache.kafka.tools.api.LongDecoder": _long,
}


def by_class(key_class: str, value_class: str) -> Decoder:
    """Returns the decoder for kafka-dump-log's --key-decoder-class and --value-decoder-class. The decoder raises
    UndecodableError for a record that has fewer bytes than the class reads."""

    def decoded(record: Record) -> Decoded:
        return Decoded(_by_class(key_class, record.key, record), _by_class(value_class, record.value, record))

    return decoded


def _by_class(name: str, data: bytes | None, record: Record) -> object:
    try:
        return None if data is None else _CLASSES[name](data)
    except struct.error:
        raise UndecodableError(
            f"{name.rpartition('.')[2]} cannot read the {len(data or b'')} bytes of the record at offset "
            f"{record.offset}"
        ) from None


# --- control records -----------------------------------------------------------------------------------------------

_TITLES: Final = {
    ControlRecordType.LEADER_CHANGE: "LeaderChange",
    ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlRecordType.KRAFT_VERSION: "KRaftVersion",
    ControlRecordType.KRAFT_VOTERS: "KRaftVoters",
}


def control_content(record: Record) -> tuple[str, Any]:
    """Returns the name and content of a control record of the metadata log. For an unknown type the name is
    CONTROL_TYPE with the number.

    Raises KafkaError and ProtocolError if the record is unreadable.
    """
    if record.control_type is None:
        raise InvalidRecordError(f"the key of the control record at offset {record.offset} has no type")
    message: Any = control_message(record)
    if message is None:
        return CONTROL_TYPE, record.control_type
    try:
        return _TITLES[ControlRecordType(record.control_type)], to_json(message, message.version)
    except KeyError as error:  # the record's own decoder raised this error with a message
        raise InvalidRecordError(f"the control record at offset {record.offset}: {error.args[0]}") from None


# --- the metadata log ----------------------------------------------------------------------------------------------


def cluster_metadata(record: Record) -> Decoded:
    """Decodes a record of __cluster_metadata (KIP-631)."""
    try:
        message, version = decode_framed(record.value)
        shown = {"type": _metadata_type(message.API_KEY), "version": version, "data": to_json(message, version)}
    except (KafkaError, MetadataError, KeyError, ValueError) as error:
        return Decoded(None, f"Error at {record.offset}, skipping. {error}")
    return Decoded(None, shown)


@cache
def _metadata_type(api_key: int) -> str:
    """Returns the name of a constant of MetadataRecordType, such as `REGISTER_BROKER_RECORD`."""
    return tables.python_name(RECORD_TYPES[api_key]).upper()


# --- coordinators' topics ------------------------------------------------------------------------------------------


@cache
def _coordinator_messages(coordinator: str) -> dict[int, tuple[str, str]]:
    """Returns the names of the key message and the value message of each record type. A key begins with the number of
    its type."""

    def by_type(part: str) -> dict[int, str]:
        found = tables.heads(tables.CURRENT, f"{coordinator}.coordinator-{part}.jsonl")
        return {head["apiKey"]: head["name"] for head in found}

    keys, values = by_type("key"), by_type("value")
    return {number: (name, values[number]) for number, name in keys.items()}


def offsets(record: Record) -> Decoded:
    """Decodes a record of __consumer_offsets: groups, members and committed offsets."""
    return _coordinator_record(record, "group-coordinator", _group_value)


def transaction_log(record: Record) -> Decoded:
    """Decodes a record of __transaction_state."""
    return _coordinator_record(record, "transaction-coordinator", to_json)


def share_group_state(record: Record) -> Decoded:
    """Decodes a record of __share_group_state (KIP-932)."""
    return _coordinator_record(record, "share-coordinator", to_json)


DECODERS: Final[dict[str, Decoder]] = {
    "cluster-metadata": cluster_metadata,
    "offsets": offsets,
    "transaction-log": transaction_log,
    "share-group-state": share_group_state,
}


def _coordinator_record(
    record: Record, coordinator: str, value_json: Callable[[Message, int], dict[str, Any]]
) -> Decoded:
    key, value = record.key, record.value
    if key is None:
        raise UndecodableError(
            f"Failed to decode message at offset {record.offset} using the specified decoder "
            "(message had a missing key)"
        )
    try:
        kind = _version(key, "key")
        if kind not in _coordinator_messages(coordinator):
            return Decoded(f"Unknown record type {kind} at offset {record.offset}, skipping.", None)
        key_name, value_name = _coordinator_messages(coordinator)[kind]
        key_json = to_json(message_class(key_name).decode(key[2:], 0), 0)
        shown: Any = "<DELETE>"
        if value is not None:
            version = _version(value, "value")
            shown = {"version": str(version), "data": value_json(_decoded(value_name, value[2:], version), version)}
    except (KafkaError, KeyError, ValueError) as error:
        return Decoded(f"Error at offset {record.offset}, skipping. {error}", None)
    return Decoded({"type": str(kind), "data": key_json}, shown)


def _version(data: bytes, part: str) -> int:
    if len(data) < 2:
        raise ValueError(f"Could not read version from {part}'s buffer.")
    return int.from_bytes(data[:2], "big", signed=True)


def _decoded(name: str, data: bytes, version: int) -> Message:
    message: Message = message_class(name).decode(data, version)
    return message


def _group_value(message: Message, version: int) -> dict[str, Any]:
    """Shows the subscriptions and assignments of the classic consumer protocol in place of their bytes."""
    shown = to_json(message, version)
    if message.NAME == "GroupMetadataValue" and shown.get("protocolType") == "consumer":
        for member in shown.get("members") or ():
            for field, name in (
                ("subscription", "ConsumerProtocolSubscription"),
                ("assignment", "ConsumerProtocolAssignment"),
            ):
                member[field] = _embedded(member[field], name)
    return shown


def _embedded(encoded: str, name: str) -> Any:
    """Returns the message in `encoded`, or `encoded` itself if it contains no message. An assignment is empty until the
    leader sends it."""
    try:
        data = base64.b64decode(encoded)
        version = _version(data, "member")
        made = message_class(name)
        version = min(version, made.VERSIONS[1])
        return to_json(made.decode_prefix(data[2:], version)[0], version)
    except (KafkaError, KeyError, ValueError, binascii.Error):
        return encoded
