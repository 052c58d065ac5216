"""Converts messages to JSON, field by field as Apache Kafka's generated JsonConverters do (KIP-673)."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

from kafkacore._fast.schema import tables
from kafkacore._fast.schema.tables import Field
from kafkacore.protocol.messages import Message
from kafkacore.protocol.uuid import Uuid


def to_json(message: Message, version: int) -> dict[str, Any]:
    """Returns the message as an object for `json.dumps`. Leaves out tagged fields that have their defaults, and fields
    that `version` does not have. Bytes become base64, and UUIDs have Kafka's form. Raises KeyError for a version that
    is in no table."""
    table = tables.message(message.NAME).table(version)
    if table is None:
        raise KeyError(f"{message.NAME} has no version {version}")
    return _struct(message, version, message.NAME, message.NAME, table.structs)


@cache
def _spellings(name: str) -> dict[str, dict[str, str]]:
    """Returns Kafka's JSON name of each field, by struct."""
    return {
        struct: {name: f"{spelled[:1].lower()}{spelled[1:]}" for name, spelled in fields.items()}
        for struct, fields in tables.spellings(name).items()
    }


def _struct(value: Any, version: int, message: str, name: str, structs: dict[str, tuple[Field, ...]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    spelled = _spellings(message).get(name, {})
    for field in structs[name]:
        if version not in field.versions:
            continue
        content = getattr(value, field.name)
        if version in field.tagged and _is_default(field, content):
            continue
        if content is None:
            made[spelled[field.name]] = None
        elif field.kind == "array":
            made[spelled[field.name]] = [
                _value(each, field.element, field.struct, version, message, structs) for each in content
            ]
        else:
            made[spelled[field.name]] = _value(content, field.kind, field.struct, version, message, structs)
    return made


def _value(
    content: Any, kind: str, struct: str, version: int, message: str, structs: dict[str, tuple[Field, ...]]
) -> Any:
    if kind == "struct":
        return _struct(content, version, message, struct, structs)
    if kind == "uuid":
        return str(Uuid(content))
    if kind in ("bytes", "records"):
        return base64.b64encode(content).decode()
    return content


def _is_default(field: Field, content: Any) -> bool:
    if field.default is None:
        return content is None
    if field.kind in ("array", "bytes", "records", "string"):
        return content is not None and len(content) == 0 if not field.default else bool(content == field.default)
    if field.kind == "uuid":
        return Uuid(content) == Uuid(bytes(16))
    if field.kind == "struct":
        return content is not None and content == type(content)()
    return bool(content == field.default)
