"""The file meta.properties. It contains the ids of the cluster and the node to which a log directory belongs, and the
directory's own id (KIP-631, KIP-858)."""

from __future__ import annotations

import os
import time
from typing import Final, NamedTuple

from kafkacore._fast.base.uuid import Uuid
from kafkacore.config import ConfigError
from kafkacore.config import properties as property_files
from kafkacore.runtime.files import OS_FILES, Files, replace
from kafkacore.storage.errors import MalformedFileError

NAME: Final = "meta.properties"
_MOST_DIGITS: Final = 20


class MetaProperties(NamedTuple):
    """The content of a meta.properties file. A file of version 1 belongs to KRaft mode, and only `directory_id` can be
    missing. A file of version 0 belongs to ZooKeeper mode, and any field other than the version can be missing."""

    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None = None
    version: int = 1

    def lines(self) -> dict[str, str]:
        """Returns the lines of the file, in the order in which Kafka writes them."""
        values = {
            "node.id" if self.version else "broker.id": self.node_id,
            "directory.id": self.directory_id,
            "version": self.version,
            "cluster.id": self.cluster_id,
        }
        return {key: str(value) for key, value in values.items() if value is not None}


def path_in(directory: str) -> str:
    return os.path.join(directory, NAME)


def encode(properties: MetaProperties, now_ms: int) -> bytes:
    """Returns the file as java.util.Properties writes it: an empty comment, the date, and the lines."""
    date = time.strftime("%a %b %d %H:%M:%S %Z %Y", time.localtime(now_ms / 1000))
    return property_files.store(properties.lines(), comments=("", date))


def write(directory: str, properties: MetaProperties, now_ms: int, files: Files = OS_FILES) -> None:
    """Writes the file atomically and durably. Raises OSError."""
    replace(files, path_in(directory), encode(properties, now_ms))


def read(directory: str, files: Files = OS_FILES) -> MetaProperties | None:
    """Reads the file. Returns None if the directory is not formatted. Raises MalformedFileError, OSError."""
    path = path_in(directory)
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    try:
        lines = property_files.parse(data, path)
    except ConfigError as error:
        raise MalformedFileError(path, str(error)) from None
    return _from_lines(path, lines)


def _from_lines(path: str, lines: dict[str, str]) -> MetaProperties:
    if not lines:
        raise MalformedFileError(path, "is empty; restore its version, cluster.id, node.id and directory.id")
    # As in Kafka, a file without a version is of version 0 (ZooKeeper mode). But a file with node.id and without
    # broker.id is from KRaft mode, and its version is missing.
    if "version" not in lines and "node.id" in lines and "broker.id" not in lines:
        raise MalformedFileError(path, "version is missing: add version=1, the version of files with node.id")
    version = _number(path, lines, "version") if "version" in lines else 0
    if version not in (0, 1):
        raise MalformedFileError(path, f"version={version} is not known; the known versions are 0 and 1")
    node_key = "node.id" if version else "broker.id"
    for key in (node_key, "cluster.id") if version else ():
        if key not in lines:
            raise MalformedFileError(path, f"{key} is missing")
    directory_id = lines.get("directory.id")
    try:
        parsed = None if directory_id is None else Uuid.parse(directory_id)
    except ValueError as error:
        raise MalformedFileError(path, f"directory.id: {error}") from None
    return MetaProperties(
        cluster_id=lines.get("cluster.id"),
        node_id=_number(path, lines, node_key) if node_key in lines else None,
        directory_id=parsed,
        version=version,
    )


def _number(path: str, lines: dict[str, str], key: str) -> int:
    text = lines[key].strip()
    # int() raises its own error for thousands of digits.
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= _MOST_DIGITS):
        raise MalformedFileError(path, f"{key}={text} is not a whole number of at most {_MOST_DIGITS} digits")
    return int(text)
