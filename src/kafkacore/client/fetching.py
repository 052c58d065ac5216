"""Fetch requests to one broker, in a fetch session (KIP-227). The requests use topic ids if the broker supports topic
ids (KIP-516)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kafkacore._fast.base.uuid import Uuid
from kafkacore.client.options import Options
from kafkacore.protocol.messages import FetchRequest

BY_NAME: Final = 12  # the last version in which requests name topics
_FIRST: Final = 0
_NO_ID: Final = Uuid()


class Asked(NamedTuple):
    """A partition in a Fetch request."""

    topic: str
    topic_id: Uuid | None
    partition: int
    offset: int
    leader_epoch: int


class FetchSession:
    """A fetch session with one broker. The broker remembers the partitions, so a request contains only the partitions
    that have changed."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = _FIRST
        self._known: dict[tuple[str, Uuid | None, int], Asked] = {}

    def request(self, wanted: Iterable[Asked], by_id: bool, isolation: int, options: Options) -> Any:
        """Returns the next request of the session."""
        asked = {(each.topic, each.topic_id, each.partition): each for each in wanted}
        changed = [each for key, each in asked.items() if self._epoch == _FIRST or self._known.get(key) != each]
        forgotten = [] if self._epoch == _FIRST else [key for key in self._known if key not in asked]
        self._known = asked
        return FetchRequest(
            max_wait_ms=options["fetch.max.wait.ms"],
            min_bytes=options["fetch.min.bytes"],
            max_bytes=options["fetch.max.bytes"],
            isolation_level=isolation,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=_topics(changed, by_id, options["max.partition.fetch.bytes"]),
            forgotten_topics_data=_forgotten(forgotten, by_id),
            rack_id=options["client.rack"],
        )

    def answered(self, session_id: int) -> None:
        """Handles a response without an error. Id 0 means that the broker has no room for a session."""
        self._id = session_id
        self._epoch = _FIRST if not session_id else 1 if self._epoch == 0x7FFFFFFF else self._epoch + 1

    def reset(self) -> None:
        """Makes the next request create a new session."""
        self._id, self._epoch, self._known = 0, _FIRST, {}


def _topics(changed: list[Asked], by_id: bool, most_bytes: int) -> list[Any]:
    found: dict[tuple[str, Uuid | None], list[Any]] = defaultdict(list)
    for each in changed:
        found[each.topic, each.topic_id].append(
            FetchRequest.FetchPartition(
                partition=each.partition,
                current_leader_epoch=each.leader_epoch,
                fetch_offset=each.offset,
                partition_max_bytes=most_bytes,
            )
        )
    return [
        FetchRequest.FetchTopic(topic_id=topic_id or _NO_ID, partitions=partitions)
        if by_id
        else FetchRequest.FetchTopic(topic=name, partitions=partitions)
        for (name, topic_id), partitions in found.items()
    ]


def _forgotten(keys: list[tuple[str, Uuid | None, int]], by_id: bool) -> list[Any]:
    found: dict[tuple[str, Uuid | None], list[int]] = defaultdict(list)
    for name, topic_id, partition in keys:
        found[name, topic_id].append(partition)
    return [
        FetchRequest.ForgottenTopic(topic_id=topic_id or _NO_ID, partitions=partitions)
        if by_id
        else FetchRequest.ForgottenTopic(topic=name, partitions=partitions)
        for (name, topic_id), partitions in found.items()
    ]
