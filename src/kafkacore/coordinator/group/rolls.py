"""Heartbeats and SyncGroups that need no decision. Processors may answer for the members of a stable group without its
shard. The shard asks the roll how long a member was silent when a session would end, and which members got their
assignment when some would be late.

`_fast.hot.heartbeats` has the processors' rolls. A shard without rolls answers every request itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Roll(Protocol):
    """The members of a group in one generation, as long as nothing about them changes."""

    def withdraw(self) -> None:
        """The shard answers again. The roll still knows when it heard each member."""

    def silence_ms(self, place: int) -> int | None:
        """How long ago the roll heard the member at this place of the list; None: never."""

    def is_synced(self, place: int) -> bool:
        """Whether this roll gave that member its assignment."""


class Rolls(Protocol):
    def publish(
        self,
        group_id: str,
        generation_id: int,
        members: Iterable[tuple[str, str | None, bytes]],
        protocol_type: str | None,
        protocol_name: str | None,
    ) -> Roll:
        """From now on processors answer heartbeats and SyncGroups of these members (id, instance id, assignment) in
        this generation. A group has one published roll at most."""
