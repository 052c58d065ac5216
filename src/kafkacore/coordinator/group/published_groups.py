"""Heartbeats and SyncGroups that need no decision. Processors may answer for the members of a stable group without its
shard. The shard asks the published group how long a member was silent when a session would end, and which members got
their assignment when some would be late.

`_fast.hot.heartbeats` has the processors' own. A shard without published groups answers every request itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class PublishedGroup(Protocol):
    """The members of a group in one generation, as long as nothing about them changes."""

    def withdraw(self) -> None:
        """The shard answers again. The times at which members were heard remain."""

    def silence_ms(self, place: int) -> int | None:
        """How long ago the member was heard at this place of the list; None: never here."""

    def is_synced(self, place: int) -> bool:
        """Whether that member got its assignment here."""


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
        this generation. A group is published once at most."""
