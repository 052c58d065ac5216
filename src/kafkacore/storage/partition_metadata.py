"""The file partition.metadata. It contains the topic id of a partition's log (KIP-516)."""

from __future__ import annotations

import os
from typing import Final

from kafkacore._fast.base.uuid import ZERO, Uuid
from kafkacore.runtime.files import OS_FILES, Files, replace
from kafkacore.storage.errors import MalformedFileError

NAME: Final = "partition.metadata"
_VERSION: Final = 0
_WHAT_IT_IS: Final = f"write it again, as two lines `version: {_VERSION}` and `topic_id: ID` with the id of the topic"


def encode(topic_id: Uuid) -> bytes:
    return f"version: {_VERSION}\ntopic_id: {topic_id}".encode()


def write(directory: str, topic_id: Uuid, files: Files = OS_FILES) -> None:
    """Writes the file into a partition's directory, atomically and durably, before the first append. Raises OSError."""
    replace(files, os.path.join(directory, NAME), encode(topic_id))


def read(directory: str, files: Files = OS_FILES) -> Uuid | None:
    """Reads the topic id. Returns None if the file does not exist, as in logs older than topic ids. Raises
    MalformedFileError, OSError."""
    path = os.path.join(directory, NAME)
    try:
        lines = files.read(path).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return None
    if not lines:
        raise MalformedFileError(path, f"is empty; {_WHAT_IT_IS}")
    fields = dict(_field(path, line) for line in lines)
    if fields.get("version") != str(_VERSION):
        raise MalformedFileError(path, f"has version {fields.get('version')!r}, but only version {_VERSION} is known")
    try:
        topic_id = Uuid.parse(fields.get("topic_id", ""))
    except ValueError as error:
        raise MalformedFileError(path, f"topic_id {error}; {_WHAT_IT_IS}") from None
    if topic_id == ZERO:
        raise MalformedFileError(path, f"topic_id {topic_id} is not the id of a topic")
    return topic_id


def _field(path: str, line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon:
        raise MalformedFileError(path, f"line {line!r} is not a name and a value; {_WHAT_IT_IS}")
    return name.strip(), value.strip()
