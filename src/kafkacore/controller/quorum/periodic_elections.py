"""Elections that the controller holds periodically, without a request. Preferred replicas become leaders again.
Partitions without a leader get an unclean leader if their topic allows unclean elections.

One search for preferred replicas handles a limited number of partitions. If more remain, the next search is due
immediately, and the event loop can do other work between the two searches. A search for partitions without a leader
handles all of them.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import Final

from kafkacore.config import BrokerConfig
from kafkacore.controller.common.partition_change import Election
from kafkacore.controller.quorum.decisions import Settings, unclean_elections
from kafkacore.controller.quorum.leaders import LeaderChanges
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.partition_records import Record, record_count
from kafkacore.metadata.partitions import CHUNK_ROWS, NO_LEADER, rows_led_by, rows_not_led_by_the_first

LOG: Final = logging.getLogger("kafkacore.controller")
MAX_ROWS_OF_A_LOOK: Final = 10_000
_NEVER: Final = 1 << 62


class PeriodicElections:
    """Decides when the active controller holds periodic elections. Times are monotonic milliseconds."""

    def __init__(self, config: BrokerConfig, now_ms: int) -> None:
        self._preferred_ms = config.leader_imbalance_check_interval_seconds * 1000
        self._unclean_ms = config.unclean_leader_election_interval_ms
        self._next_preferred_ms = now_ms + self._preferred_ms if config.auto_leader_rebalance_enable else _NEVER
        self._next_unclean_ms = now_ms + self._unclean_ms
        self._preferred_from_row = 0

    @property
    def next_ms(self) -> int:
        """When `due` must be called next."""
        return min(self._next_preferred_ms, self._next_unclean_ms)

    def due(self, image: MetadataImage, settings: Settings, now_ms: int) -> list[Record]:
        """Returns the records of the elections that are due. Call this again if `next_ms` has already passed."""
        records: list[Record] = []
        if now_ms >= self._next_unclean_ms:
            self._next_unclean_ms = now_ms + self._unclean_ms
            records += elect_unclean(image, settings)
            if records:
                LOG.warning("%d partitions without a leader get a leader that may lack records", record_count(records))
        if now_ms >= self._next_preferred_ms:
            records += self._rebalance(image, settings, now_ms)
        return records

    def _rebalance(self, image: MetadataImage, settings: Settings, now_ms: int) -> list[Record]:
        self._next_preferred_ms = now_ms + self._preferred_ms  # set first, so that an error causes no immediate repeat
        found = rows_not_led_by_the_first(image.partition_chunks, self._preferred_from_row)
        rows = list(islice(found, MAX_ROWS_OF_A_LOOK + 1))
        records = LeaderChanges(image, settings, election=Election.PREFERRED).records(rows[:MAX_ROWS_OF_A_LOOK])
        self._preferred_from_row = 0
        if len(rows) > MAX_ROWS_OF_A_LOOK:
            self._preferred_from_row, self._next_preferred_ms = rows[-1], now_ms
        return records


def elect_unclean(image: MetadataImage, settings: Settings) -> list[Record]:
    """Elects leaders for partitions that have no leader and whose topic allows unclean elections (KIP-106)."""
    chunks = image.partition_chunks
    allowed: dict[int, bool] = {}
    rows = []
    for row in rows_led_by(chunks, NO_LEADER):
        topic_row = chunks[row // CHUNK_ROWS].topic[row % CHUNK_ROWS]
        if topic_row not in allowed:
            allowed[topic_row] = unclean_elections(image, settings, image.topic_at(topic_row).name)
        if allowed[topic_row]:
            rows.append(row)
    return LeaderChanges(image, settings).records(rows)
