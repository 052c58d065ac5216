"""Code that both fetcher drivers share: the choice of request versions, and log messages about partitions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkacore._fast.follow.handle import FETCH_VERSIONS, LIST_OFFSETS_VERSIONS, FetcherEvent
from kafkacore.protocol.apis import ApiKey, api
from kafkacore.protocol.errors import ProtocolError

LOG: Final = logging.getLogger("kafkacore.replication")
_TEXTS: Final = {
    "cut": "truncated from offset %d to %d, where it diverges from its leader's log",
    "cut-to-end": "truncated from offset %d to %d, the end of its leader's log: the leader was elected uncleanly,"
    " or it lost records",
    "restart": "ended at offset %d, below the start of its leader's log, and restarts at %d",
    "corrupt": "got records at offset %d that cannot be appended (error %d); the broker fetches them again",
    "newer-epoch": "got a batch at offset %d of an epoch above its leader's, %d; the broker fetches it again",
    "fenced": "is no longer fetched in leader epoch %d, because its leader has a newer one",
    "failed": "is no longer followed, because its log cannot be written (error %d)",
    "refused": "got error %d from its leader; the broker fetches it again after replica.fetch.backoff.ms",
}


class Spoken(NamedTuple):
    """The versions that a fetcher uses in its requests to a leader."""

    fetch: int
    list_offsets: int


def common_versions(versions: Mapping[int, tuple[int, int]]) -> Spoken:
    """Returns the highest versions that the leader and this broker both support. Raises ProtocolError if a request has
    no such version."""
    return Spoken(
        _common(versions, ApiKey.FETCH, FETCH_VERSIONS), _common(versions, ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSIONS)
    )


def _common(versions: Mapping[int, tuple[int, int]], key: int, ours: tuple[int, int]) -> int:
    lowest, highest = versions.get(key, (0, -1))
    chosen = min(highest, ours[1])
    if chosen < max(lowest, ours[0]):
        raise ProtocolError(
            f"{api(key).name}: the leader speaks {lowest} to {highest}, this broker {ours[0]} to {ours[1]}"
        )
    return chosen


def log_event(event: FetcherEvent) -> None:
    text = _TEXTS[event.kind]
    numbers = (event.first, event.second)[: text.count("%d")]
    # An ordinary change of the leader truncates uncommitted records from many logs at once.
    level = logging.INFO if event.kind == "cut" else logging.WARNING
    LOG.log(level, "partition %s-%d %s", event.topic, event.partition, text % numbers)
