"""Published groups. While a group is published, processors answer the heartbeats and SyncGroups of its members without
the group's shard, because such requests need no decision. Before a shard ends a session, the published group reports
to it how long the member has been silent. Before a shard removes members that did not fetch their assignment, the
published group reports to it which members got the assignment from a processor.

`_fast.hot.heartbeats` implements this for processors. A shard without published groups answers every request itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class PublishedGroup(Protocol):
    """The members of a group in one generation. It is valid until one of these members changes."""

    def withdraw(self) -> None:
        """Ends the publication, so that the shard answers again. The times of the members' last heartbeats are kept."""

    def silence_ms(self, place: int) -> int | None:
        """Returns the ms since a processor last received a heartbeat of the member at this place in the list, or None
        if no processor has received any."""

    def is_synced(self, place: int) -> bool:
        """Returns whether a processor has sent the member at this place its assignment."""


class PublishedGroups(Protocol):
    def publish(
        self,
        group_id: str,
        generation_id: int,
        members: Iterable[tuple[str, str | None, bytes]],
        protocol_type: str | None,
        protocol_name: str | None,
    ) -> PublishedGroup:
        """Publishes a group: from now on, processors answer heartbeats and SyncGroups of these members (id, instance
        id, assignment) in this generation. The caller withdraws a group before publishing it again."""
