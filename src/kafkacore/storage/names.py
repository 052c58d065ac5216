"""The names of topics, and of the directories and files of a log."""

from __future__ import annotations

import os
from enum import Enum
from typing import Final, NamedTuple

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
PRODUCER_SNAPSHOT: Final = ".snapshot"
CHECKPOINT: Final = ".checkpoint"
# Suffixes of temporary files: files to be deleted, output of the cleaner, files that are about to replace others, and
# incomplete downloads.
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
PARTIAL: Final = ".part"

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
CLUSTER_METADATA_DIRECTORY: Final = f"{CLUSTER_METADATA_TOPIC}-0"
# Directories that may exist beside the directories of partitions.
NO_LOGS: Final = frozenset({"lost+found", "remote-log-index-cache"})
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
MAX_TOPIC_NAME_LENGTH: Final = 249
_MAX_FILE_NAME_LENGTH: Final = 255
_OFFSET_DIGITS: Final = 20
_EPOCH_DIGITS: Final = 10
_TOPIC_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class Kind(Enum):
    """The purpose of a partition's directory. The value is the end of the directory's name."""

    LIVE = ""
    DELETE = "-delete"  # a deleted partition, until its files are gone
    FUTURE = "-future"  # a replica that is moving here from another log directory (KIP-113)
    STRAY = "-stray"  # a replica that the metadata assigns elsewhere


_NOT_LIVE: Final = tuple([kind.value for kind in Kind if kind is not Kind.LIVE])


class PartitionDirectory(NamedTuple):
    """The parts of the name of a partition's directory. A long topic name may be truncated if the kind is DELETE or
    STRAY."""

    topic: str
    partition: int
    kind: Kind


def topic_name_problem(name: str) -> str | None:
    """Returns the reason why a topic cannot have this name, in the words of Kafka's INVALID_TOPIC_EXCEPTION. Returns
    None for a valid name."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    if not _TOPIC_CHARACTERS.issuperset(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def partition_directory_name(topic: str, partition: int, kind: Kind = Kind.LIVE, unique: str = "") -> str:
    """Returns `topic-partition`, or `topic-partition.UNIQUE-kind`. UNIQUE stands for 32 hexadecimal digits that make
    the name unique.

    As in Kafka, the names for DELETE and STRAY are truncated to the length that a file system allows.
    """
    if kind is Kind.LIVE:
        return f"{topic}-{partition}"
    end = f"-{partition}.{unique}{kind.value}"
    return f"{topic if kind is Kind.FUTURE else topic[: _MAX_FILE_NAME_LENGTH - len(end)]}{end}"


def future_name_fits(topic: str, partition: int) -> bool:
    """Returns whether a file system allows the name of a future log, which must not be truncated."""
    return len(partition_directory_name(topic, partition, Kind.FUTURE, "0" * 32)) <= _MAX_FILE_NAME_LENGTH


def parse_partition_directory(name: str) -> PartitionDirectory | None:
    """Returns the parts of a partition directory's name. Returns None for any other name. Kafka refuses to start if a
    log directory contains a subdirectory with an unknown name."""
    kind, stem = Kind.LIVE, name
    if name.endswith(_NOT_LIVE):
        kind = next(kind for kind in (Kind.DELETE, Kind.FUTURE, Kind.STRAY) if name.endswith(kind.value))
        stem, dot, unique = name.removesuffix(kind.value).rpartition(".")
        if not dot or not unique:
            return None
    topic, dash, partition = stem.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdigit()) or int(partition) >= 1 << 31:
        return None
    if partition[0] == "0" != partition:
        return None  # `t-07` would be a second name of the partition `t-7`
    return PartitionDirectory(topic, int(partition), kind)


def file_name(base_offset: int, suffix: str) -> str:
    """Returns a file name that consists of the 20 digits of an offset and a suffix such as LOG."""
    return f"{base_offset:0{_OFFSET_DIGITS}d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """Returns the base offset and the suffix (`.log`, `.log.deleted`) of a file name. Returns None if the name does not
    begin with 20 digits and a dot."""
    digits, suffix = name[:_OFFSET_DIGITS], name[_OFFSET_DIGITS:]
    if len(digits) != _OFFSET_DIGITS or not (digits.isascii() and digits.isdigit()) or not suffix.startswith("."):
        return None
    offset = int(digits)
    return (offset, suffix) if offset < 1 << 63 else None


def checkpoint_name(end_offset: int, epoch: int) -> str:
    """Returns the name of a metadata snapshot. The snapshot covers the records below `end_offset`, and the last of
    these has `epoch` (KIP-630)."""
    return f"{end_offset:0{_OFFSET_DIGITS}d}-{epoch:0{_EPOCH_DIGITS}d}{CHECKPOINT}"


def parse_checkpoint_name(name: str) -> tuple[int, int] | None:
    """Returns the end offset and epoch in the name of a complete snapshot. Returns None for other names, also for a
    deleted or partial snapshot."""
    offset, dash, epoch = name.removesuffix(CHECKPOINT).partition("-")
    if not name.endswith(CHECKPOINT) or not dash or (len(offset), len(epoch)) != (_OFFSET_DIGITS, _EPOCH_DIGITS):
        return None
    if not (offset.isascii() and offset.isdigit() and epoch.isascii() and epoch.isdigit()):
        return None
    return int(offset), int(epoch)


def metadata_directory(log_dir: str) -> str:
    """Returns the path of the metadata log in `log_dir`."""
    return os.path.join(log_dir, CLUSTER_METADATA_DIRECTORY)
