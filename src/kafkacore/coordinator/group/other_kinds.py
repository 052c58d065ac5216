"""Groups of the kinds that this node does not run (consumer, share and streams groups). The node reads their ids
from their records, so that no client can create a classic group with the same id.

The records stay in the log unchanged; this node deletes none of them (KIP-848, KIP-932, KIP-1071).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkacore.protocol.messages import ConsumerGroupMemberMetadataKey, ConsumerGroupMetadataKey

CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"
CLASSIC: Final = "classic"


class _Kind(NamedTuple):
    group_type: str
    names_member: bool = False
    names_group: bool = False


# Maps the number of each kind of key to the role of the key. A record of a kind without a role only shows that the
# group exists.
_KINDS: Final = {
    3: _Kind(CONSUMER, names_group=True),
    4: _Kind(CONSUMER),
    5: _Kind(CONSUMER, names_member=True),
    6: _Kind(CONSUMER),
    7: _Kind(CONSUMER),
    8: _Kind(CONSUMER),
    10: _Kind(SHARE, names_member=True),
    11: _Kind(SHARE, names_group=True),
    12: _Kind(SHARE),
    13: _Kind(SHARE),
    14: _Kind(SHARE),
    15: _Kind(SHARE),
    16: _Kind(CONSUMER),
    17: _Kind(STREAMS, names_group=True),
    19: _Kind(STREAMS, names_member=True),
    20: _Kind(STREAMS),
    21: _Kind(STREAMS),
    22: _Kind(STREAMS),
    23: _Kind(STREAMS),
}


class OtherGroup:
    """A group that this node does not run. `group_type` is consumer, share or streams."""

    __slots__ = ("group_id", "group_type", "members")

    def __init__(self, group_id: str, group_type: str) -> None:
        self.group_id = group_id
        self.group_type = group_type
        self.members: set[str] = set()

    @property
    def state(self) -> str:
        """The group's state according to its records. Only the group's coordinator knows whether a rebalance is
        in progress."""
        return "Stable" if self.members else "Empty"


def is_other_kind(kind: int) -> bool:
    return kind in _KINDS


def type_of(kind: int) -> str:
    return _KINDS[kind].group_type


def group_id_of(key: bytes) -> str:
    """Returns the group id in a key of any of these kinds; each key begins with the id. Raises ProtocolError."""
    return ConsumerGroupMetadataKey.decode_prefix(key[2:], 0)[0].group_id


def replay(group: OtherGroup, kind: int, key: bytes, present: bool) -> bool:
    """Applies a record. Returns whether the group still exists. Raises ProtocolError."""
    if _KINDS[kind].names_member:
        member_id = ConsumerGroupMemberMetadataKey.decode(key[2:], 0).member_id
        if present:
            group.members.add(member_id)
        else:
            group.members.discard(member_id)
    return present or not _KINDS[kind].names_group
