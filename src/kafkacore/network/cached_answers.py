"""Cached responses. Processor threads send such a response, without Python, to every client that sends the same
request.

A handler marks such a response as a `CachedAnswer`. The response stays cached until something on which it depends
changes. The cache does not check the rights of clients, so a handler must not mark a response that depends on the
client.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from kafkacore._fast.plane.answer_cache import ASKED_LIMIT, AnswerCache, CachedAnswers
from kafkacore._fast.plane.inbound import InboundRequest
from kafkacore._fast.plane.plane import NativePlane

MAX_ANSWERS: Final = 128
MAX_BYTES: Final = 64 << 20


class CachedAnswer(NamedTuple):
    """A response to cache. `frame` is its header and body. The response depends on each member of `depends`, or on
    everything if `depends` is None."""

    frame: bytes
    depends: AbstractSet[object] | None


class Asked(NamedTuple):
    """A request in the form in which processors look it up. `drops` is the number of times that the cache had dropped
    responses when the request arrived."""

    listener: int
    api_version: int
    body: bytes
    drops: int


class ApiCache:
    """The cached responses of one API of one plane. Use this object only on the plane's loop."""

    def __init__(self) -> None:
        self.slot = AnswerCache()
        self._kept: dict[tuple[int, int, bytes], CachedAnswer] = {}
        self._size_bytes = 0
        self._drops = 0

    def asked(self, inbound: InboundRequest) -> Asked | None:
        """Returns the request in the form in which processors look it up. Returns None if the request is too long to be
        cached. The memory of `inbound` must not have been released."""
        if inbound.frame_size - inbound.header_size > ASKED_LIMIT:
            return None
        body = bytes(memoryview(inbound)[inbound.header_size :])
        return Asked(inbound.listener, inbound.api_version, body, self._drops)

    def keep(self, plane: NativePlane, asked: Asked | None, answer: CachedAnswer) -> None:
        """Caches the response. Does nothing if the cache has dropped responses since the request arrived, because the
        handler may have read its data before the change. If the cache is full, empties it first. The next requests fill
        it again."""
        if asked is None or asked.drops != self._drops or len(answer.frame) > MAX_BYTES:
            return
        if len(self._kept) >= MAX_ANSWERS or self._size_bytes + len(answer.frame) > MAX_BYTES:
            self._kept.clear()
            self._size_bytes = 0
        key = asked[:3]
        if key in self._kept:  # the same request arrived again before the processors had this response
            return
        self._size_bytes += len(answer.frame)
        self._kept[key] = answer
        self._publish(plane)

    def forget(self, plane: NativePlane, changed: AbstractSet[object] | None) -> None:
        """Drops the responses that depend on a member of `changed`, or all responses if `changed` is None."""
        self._drops += 1
        left = {
            key: answer
            for key, answer in self._kept.items()
            if changed is not None and answer.depends is not None and answer.depends.isdisjoint(changed)
        }
        if len(left) != len(self._kept):
            self._kept = left
            self._size_bytes = sum(len(answer.frame) for answer in left.values())
            self._publish(plane)

    def __len__(self) -> int:
        return len(self._kept)

    def _publish(self, plane: NativePlane) -> None:
        entries = [(*key, answer.frame) for key, answer in self._kept.items()]
        self.slot.publish(plane, CachedAnswers(entries) if entries else None)
