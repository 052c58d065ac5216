"""The limit of partitions that a client's request may name. Without it, one request could occupy the controller, which
handles one event at a time, for minutes. Quorum controllers have the same limit."""

from __future__ import annotations

from typing import Final

from kafkacore.protocol.errors import ErrorCode, error_for

MAX_PARTITIONS_PER_REQUEST: Final = 10_000


def limit_partitions(count: int) -> None:
    """Raises POLICY_VIOLATION if a request names more than the allowed number of partitions."""
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise error_for(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
