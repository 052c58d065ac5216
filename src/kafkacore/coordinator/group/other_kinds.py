"""Groups of kinds that this node does not run. It knows them from their records, so that no client can create a classic
group with the same id.

Their records stay in the log as they are; this node deletes none of them (KIP-848, KIP-932, KIP-1071).
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


# The role of each kind of key, by the kind's number. A record of a kind without a role only says that the group exists.
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
    """`group_type` is consumer, share or streams."""

    __slots__ = ("group_id", "group_type", "members")

    def __init__(self, group_id: str, group_type: str) -> None:
        self.group_id = group_id
        self.group_type = group_type
        self.members: set[str] = set()

    @property
    def state(self) -> str:
        """The state as far as the records show it: only the group's coordinator knows whether a rebalance is under
        way."""
        return "Stable" if self.members else "Empty"


def is_other_kind(kind: int) -> bool:
    return kind in _KINDS


def type_of(kind: int) -> str:
    return _KINDS[kind].group_type


def group_id_of(key: bytes) -> str:
    """The group id in a key of any of these kinds: each key begins with it. Raises ProtocolError."""
    return ConsumerGroupMetadataKey.decode_prefix(key[2:], 0)[0].group_id


def replay(group: OtherGroup, kind: int, key: bytes, present: bool) -> bool:
    """Whether the group still exists. Raises ProtocolError."""
    if _KINDS[kind].names_member:
        member_id = ConsumerGroupMemberMetadataKey.decode(key[2:], 0).member_id
        if present:
            group.members.add(member_id)
        else:
            group.members.discard(member_id)
    return present or not _KINDS[kind].names_group
