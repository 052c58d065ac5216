"""Heartbeats that need no decision: a stable group's members may be answered without its shard, which asks when a
session would end how long nothing was heard.

`_fast.heartbeats` has the processors' rolls; a shard that is given none answers every heartbeat itself.
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


class Rolls(Protocol):
    def publish(self, group_id: str, generation_id: int, members: Iterable[tuple[str, str | None]]) -> Roll:
        """From now on heartbeats of these (id, instance id) in this generation are answered. No other roll of the group
        is published."""
