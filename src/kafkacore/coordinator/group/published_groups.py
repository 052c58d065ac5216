"""Published groups: processors answer the heartbeats and SyncGroups of a stable group's members without its shard,
because these need no decision. Before a shard ends a session, it asks the published group how long the member was
silent. Before it removes members that did not fetch their assignment, it asks which members got theirs from a
processor.

`_fast.hot.heartbeats` implements this for processors. A shard without published groups answers every request itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class PublishedGroup(Protocol):
    """The members of a group in one generation. It is valid until something about them changes."""

    def withdraw(self) -> None:
        """Makes the shard answer again. The times of the members' last heartbeats remain."""

    def silence_ms(self, place: int) -> int | None:
        """How long ago processors heard the member at this place of the list, in ms; None if never."""

    def is_synced(self, place: int) -> bool:
        """Whether a processor gave that member its assignment."""


class PublishedGroups(Protocol):
    def publish(
        self,
        group_id: str,
        generation_id: int,
        members: Iterable[tuple[str, str | None, bytes]],
        protocol_type: str | None,
        protocol_name: str | None,
    ) -> PublishedGroup:
        """From now on processors answer heartbeats and SyncGroups of these members (id, instance id, assignment) in
        this generation. The caller withdraws a group before it publishes it again."""
