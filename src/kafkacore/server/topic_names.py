"""Which topic names are legal, and which topics are Kafka's own."""

from __future__ import annotations

from typing import Final

from kafkacore.protocol.errors import ErrorCode, error_for

MAX_NAME_LENGTH: Final = 249  # a directory `NAME-PARTITION.ID-delete` must fit a file name of 255
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
_LEGAL: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def topic_name_fault(name: str) -> str | None:
    """Why a name is illegal, in Kafka's words; None when it is legal."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return "'.' or '..' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL.issuperset(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION."""
    fault = topic_name_fault(name)
    if fault is not None:
        raise error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")
