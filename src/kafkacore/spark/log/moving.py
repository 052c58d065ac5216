"""Lists the replicas in several log directories of a broker. Meanwhile the broker may move a replica from one of these
directories to another.

A move ends with two renames: the future log gets the live name, then the former log becomes a deleted one. A listing
reads one directory after another. So it can find the replica live in both directories, or in neither.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkacore.spark.log.layout import NO_BROKER, LogDirectory, Replica, replicas
from kafkacore.storage.names import Kind

# The pauses between listings. Together they take a second. A running broker needs less time between the two renames. A
# replica stays live in both directories if the broker was killed between the renames, or if the directories belong to
# two brokers with the same id. In these cases, the listing after the last pause counts.
_PAUSES_S: Final = tuple(0.002 * (1 << number) for number in range(9))


class Listed(NamedTuple):
    """A log directory and its replicas of the wanted kinds."""

    log_dir: LogDirectory
    replicas: list[Replica]


def listings(directories: list[tuple[LogDirectory, str | None]], kinds: frozenset[Kind]) -> Iterator[list[Listed]]:
    """Yields listings until no replica has moved since the last one. The caller works with each listing, and keeps only
    the result for the last one."""
    paths = defaultdict(set)
    for log_dir, _ in directories:
        paths[log_dir.broker].add(log_dir.path)
    can_move = any(len(each) > 1 for broker, each in paths.items() if broker != NO_BROKER)
    for pause_s in _PAUSES_S if can_move else ():
        listing = _look(directories, kinds)
        yield listing
        places = _places(listing)
        if all(len(each) == 1 for each in places.values()) and places == _places(_look(directories, kinds)):
            return
        time.sleep(pause_s)
    yield _look(directories, kinds)


def _look(directories: list[tuple[LogDirectory, str | None]], kinds: frozenset[Kind]) -> list[Listed]:
    return [Listed(log_dir, list(replicas(log_dir, only, kinds))) for log_dir, only in directories]


def _places(listing: list[Listed]) -> dict[tuple[int, str, int], set[str]]:
    """Returns the log directories in which each replica is live, by broker, topic and partition."""
    found: dict[tuple[int, str, int], set[str]] = defaultdict(set)
    for log_dir, held in listing:
        for each in held:
            if each.kind is Kind.LIVE and log_dir.broker != NO_BROKER:
                found[log_dir.broker, each.topic, each.partition].add(log_dir.path)
    return found
