"""Which topic names are legal, and which topics are Kafka's own."""

from __future__ import annotations

from typing import Final

from kafkacore.protocol.errors import ErrorCode, error_for

MAX_NAME_LENGTH: Final = 249  # a directory `NAME-PARTITION.ID-delete` must fit a file name of 255
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
_LEGAL: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def topic_name_fault(name: str) -> str | None:
    """Why a name is illegal; None when it is legal."""
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return "'.' and '..' are no names"
    if len(name) > MAX_NAME_LENGTH:
        return f"it has {len(name)} characters, {MAX_NAME_LENGTH} are allowed"
    if not _LEGAL.issuperset(name):
        return f"{name!r} has characters other than ASCII letters and digits, '.', '_' and '-'"
    return None


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION."""
    fault = topic_name_fault(name)
    if fault is not None:
        raise error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic name is invalid: {fault}.")
