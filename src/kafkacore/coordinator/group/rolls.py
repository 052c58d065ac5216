"""Heartbeats and SyncGroups that need no decision: a stable group's members may be answered without its shard, which
asks when a session would end how long nothing was heard, and who was given its assignment when somebody would be late.

`_fast.hot.heartbeats` has the processors' rolls; a shard that is given none answers every request itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Roll(Protocol):
    """The members of a group in one generation, as long as nothing about them changes."""

    def withdraw(self) -> None:
        """The shard answers again. What was heard remains."""

    def silence_ms(self, place: int) -> int | None:
        """How long the member at this place of the list has not been heard of; None: never by this roll."""

    def is_synced(self, place: int) -> bool:
        """Whether that member was given its assignment by this roll."""


class Rolls(Protocol):
    def publish(
        self,
        group_id: str,
        generation_id: int,
        members: Iterable[tuple[str, str | None, bytes]],
        protocol_type: str | None,
        protocol_name: str | None,
    ) -> Roll:
        """From now on heartbeats and SyncGroups of these (id, instance id, assignment) in this generation are answered.
        No other roll of the group is published."""
