"""Answers heartbeats and SyncGroups as the native processors do, for shards whose clock a test controls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kafkacore._fast.hot import heartbeats
from kafkacore._fast.world.environment import Environment, ManualClock
from kafkacore.protocol.messages import SyncGroupResponse


class PublishedGroups:
    """The real native groups, in an Environment whose clock follows `now_ms`."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._clock = ManualClock()
        self._at_ms = now_ms()
        self._native = heartbeats.PublishedGroups(Environment(self._clock))
        self.noted = 0
        self.synced = 0
        # By group: the protocol type and name that were published last.
        self._protocols: dict[str, tuple[str | None, str | None]] = {}

    def publish(
        self,
        group_id: str,
        generation_id: int,
        members: Iterable[tuple[str, str | None, bytes]],
        protocol_type: str | None,
        protocol_name: str | None,
    ) -> PublishedGroup:
        self._protocols[group_id] = protocol_type, protocol_name
        return PublishedGroup(
            self, self._native.publish(group_id, generation_id, members, protocol_type, protocol_name)
        )

    def heartbeat(self, request: Any) -> bool:
        """Returns whether the processor answers the heartbeat without an error and without the shard."""
        self.go_on()
        noted = self._native.note(request.group_id, request.generation_id, request.member_id, request.group_instance_id)
        self.noted += noted
        return noted

    def sync_group(self, request: Any) -> SyncGroupResponse | None:
        """Returns the processor's answer, or None if the request must go to the shard. Sends the request in the latest
        version that can express it. If the answer in this version has no protocol type and name, adds those that were
        published."""
        version = 3 if request.protocol_type is None and request.protocol_name is None else 5
        told = self._native.sync_group(request.encode(version), version)
        if told is None:
            return None
        self.synced += 1
        answer = SyncGroupResponse.decode(told, version)
        protocols = self._protocols[request.group_id]
        assert version < 5 or protocols == (answer.protocol_type, answer.protocol_name)
        answer.protocol_type, answer.protocol_name = protocols
        return answer

    def go_on(self) -> None:
        now_ms = self._now_ms()
        self._clock.advance_ms(now_ms - self._at_ms)
        self._at_ms = now_ms


class PublishedGroup:
    def __init__(self, home: PublishedGroups, native: heartbeats.PublishedGroup) -> None:
        self._home = home
        self._native = native
        self.is_withdrawn = False

    def withdraw(self) -> None:
        self.is_withdrawn = True
        self._native.withdraw()

    def silence_ms(self, place: int) -> int | None:
        self._home.go_on()
        return self._native.silence_ms(place)

    def is_synced(self, place: int) -> bool:
        return self._native.is_synced(place)
