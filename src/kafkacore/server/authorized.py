"""The operations that a principal is allowed to perform, in the form that responses use (KIP-430): one bit for each
code of AclOperation.

Without an authorizer, everyone is allowed to perform every operation that exists for the resource.
"""

from __future__ import annotations

from typing import Final

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = range(3, 9)
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = range(9, 13)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = _bits(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
GROUP_OPERATIONS: Final = _bits(_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
CLUSTER_OPERATIONS: Final = _bits(
    _CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE
)
