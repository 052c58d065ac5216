"""The processors' part in heartbeats, for shards that tests drive by a clock of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kafkacore._fast.env import Environment, ManualClock
from kafkacore._fast.heartbeats import HeartbeatRoll, HeartbeatRolls


class Rolls:
    """The real ones, in an environment whose clock goes as `now_ms` does."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._clock = ManualClock()
        self._at_ms = now_ms()
        self._native = HeartbeatRolls(Environment(self._clock))
        self.noted = 0

    def publish(self, group_id: str, generation_id: int, members: Iterable[tuple[str, str | None]]) -> Roll:
        return Roll(self, self._native.publish(group_id, generation_id, members))

    def heartbeat(self, request: Any) -> bool:
        """Whether it is answered without the shard, and without an error."""
        self.go_on()
        noted = self._native.note(request.group_id, request.generation_id, request.member_id, request.group_instance_id)
        self.noted += noted
        return noted

    def go_on(self) -> None:
        now_ms = self._now_ms()
        self._clock.advance_ms(now_ms - self._at_ms)
        self._at_ms = now_ms


class Roll:
    def __init__(self, home: Rolls, native: HeartbeatRoll) -> None:
        self._home = home
        self._native = native
        self.is_withdrawn = False

    def withdraw(self) -> None:
        self.is_withdrawn = True
        self._native.withdraw()

    def silence_ms(self, place: int) -> int | None:
        self._home.go_on()
        return self._native.silence_ms(place)
