"""The markers of the exactly-once sink. For each query, a marker holds the id of the last committed batch.

A marker is a record of a compacted topic, with the query's id as its key. The marker is part of the batch's
transaction, so it becomes visible together with the rows. All markers are in partition 0, so that a query finds its
marker even after the topic got more partitions.
"""

import json
import time
from typing import Any, Final

import pyarrow as pa

from kafkacore.client import EARLIEST, LATEST, Client, Range
from kafkacore.spark.errors import ExactlyOnceError

# How long the sink waits for open transactions of other queries, which can hide a marker. This is longer than the
# sink's default transaction timeout, after which the broker aborts a transaction.
STABLE_TIMEOUT_S: Final = 120.0
_PARTITION: Final = 0
_STEP: Final = 2000
_POLL_S: Final = 0.02


class Markers:
    """The marker of one query, which the sink reads and writes."""

    def __init__(self, client: Client, topic: str, query_id: str) -> None:
        self.client = client
        self.topic = topic
        self.key = query_id.encode()

    def last(self) -> int | None:
        """Returns the batch id of the last visible marker, or None. Searches backwards, because the marker of a running
        query is near the end of the log.

        :raises ExactlyOnceError: a transaction of another query hides the end of the topic for too long
        """
        end = self._stable_end()
        which = (self.topic, _PARTITION)
        first = self.client.offsets({which: EARLIEST}, "read_committed")[which].offset
        step = _STEP
        while end > first:
            start = max(first, end - step)
            found = self._search(start, end)
            if found is not None:
                return found
            end, step = start, step * 4
        return None

    def send(self, producer: Any, batch_id: int) -> None:
        """Adds the marker to the transaction of `producer`."""
        value = json.dumps({"batchId": batch_id}).encode()
        row = pa.RecordBatch.from_pydict({"key": pa.array([self.key]), "value": pa.array([value])})
        producer.send(self.topic, _PARTITION, row)

    def _stable_end(self) -> int:
        """Waits until every transaction before the present end of the log has ended, and returns this end. An open
        transaction of another query could hide this query's marker."""
        which = (self.topic, _PARTITION)
        end = self.client.offsets({which: LATEST}, "read_uncommitted")[which].offset
        deadline = time.monotonic() + STABLE_TIMEOUT_S
        while self.client.offsets({which: LATEST}, "read_committed")[which].offset < end:
            if time.monotonic() > deadline:
                raise ExactlyOnceError(
                    f"an open transaction hides offset {end} of {self.topic}-{_PARTITION} for more"
                    f" than {STABLE_TIMEOUT_S:.0f} s: end the transaction with kafka-transactions, or"
                    " give the query a separate markerTopic"
                )
            time.sleep(_POLL_S)
        return end

    def _search(self, start: int, end: int) -> int | None:
        wanted = Range(self.topic, _PARTITION, start, end)
        found = None
        for rows in self.client.read([wanted], ("key", "value"), "read_committed"):
            batch = pa.record_batch(rows)
            for key, value in zip(batch.column("key"), batch.column("value"), strict=True):
                if key.as_py() == self.key:
                    found = int(json.loads(value.as_py())["batchId"])
        return found
