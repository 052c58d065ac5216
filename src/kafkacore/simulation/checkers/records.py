"""Checkers of clients' records and groups' commits: acknowledged records and commits are never lost, and two reads of
the same offset return the same record."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, ClassVar

from kafkacore.simulation.checkers.deletions import Deletions
from kafkacore.simulation.checkers.observations import (
    CommitFetched,
    Entry,
    ImageSeen,
    LogRead,
    LogSurvived,
    ProducerRefused,
    RecordAcknowledged,
    RecordRead,
    RecordsDeleted,
    RecordsSent,
    ReplicaLogSeen,
    ValuesRead,
)
from kafkacore.simulation.checkers.violation import Checker


class OneRecordForEachOffset(Checker):
    """An offset holds the same record in every acknowledgement, in every read, and at the end of the run."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, int], tuple[bytes, str]] = {}

    def acknowledged(self, seen: RecordAcknowledged) -> None:
        self._same(seen.log, seen.offset, seen.value, "acknowledged")

    def read(self, seen: RecordRead) -> None:
        self._same(seen.log, seen.offset, seen.value, "read")

    def survived(self, seen: LogSurvived) -> None:
        for offset, value in seen.records.items():
            self._same(seen.log, offset, value, "kept")

    def _same(self, log: str, offset: int, value: bytes, how: str) -> None:
        known, known_how = self._records.setdefault((log, offset), (value, how))
        if known != value:
            raise self.broken(f"offset {offset} of {log} was {known!r} when {known_how}, and {value!r} when {how}")

    sees: ClassVar = {RecordAcknowledged: acknowledged, RecordRead: read, LogSurvived: survived}


class AcknowledgedRecordsStay(Deletions, Checker):
    """A record that was acknowledged, or read below the high watermark, still exists at the end of the run. Records
    that a client deleted do not count. This checker gets no acknowledgements with acks=1, and no records of topics that
    allow unclean elections."""

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[str, dict[int, bytes]] = {}

    def stored(self, seen: RecordAcknowledged | RecordRead) -> None:
        self._records.setdefault(seen.log, {})[seen.offset] = seen.value

    def survived(self, seen: LogSurvived) -> None:
        deleted = self.deleted_below(seen.log)
        for offset, value in sorted(self._records.get(seen.log, {}).items()):
            if offset >= deleted and seen.records.get(offset) != value:
                raise self.broken(f"{seen.log} has lost {value!r} at offset {offset}")

    sees: ClassVar = {
        RecordsDeleted: Deletions.deleted,
        RecordAcknowledged: stored,
        RecordRead: stored,
        LogSurvived: survived,
    }


class RecordsWereSent(Checker):
    """Every record that a client reads equals, byte for byte, a record that a client has sent. This also holds for
    topics that may lose records: a record is either lost or whole."""

    def __init__(self) -> None:
        self._sent: dict[str, set[bytes]] = {}

    def sent(self, seen: RecordsSent) -> None:
        self._sent.setdefault(seen.log, set()).update(seen.values)

    def read(self, seen: RecordRead) -> None:
        self._was_sent(seen.log, seen.value)

    def values(self, seen: ValuesRead) -> None:
        for value in seen.values:
            self._was_sent(seen.log, value)

    def survived(self, seen: LogSurvived) -> None:
        for value in seen.records.values():
            self._was_sent(seen.log, value)

    def _was_sent(self, log: str, value: bytes) -> None:
        if log in self._sent and value not in self._sent[log]:
            raise self.broken(f"a read of {log} returned {value!r}, which no client has sent")

    sees: ClassVar = {RecordsSent: sent, RecordRead: read, ValuesRead: values, LogSurvived: survived}


class ProducersWriteInOrder(Deletions, Checker):
    """In each replica's log, the epochs of an idempotent producer never decrease, and the batches that it sent in one
    epoch follow each other without a gap (KIP-98). A producer whose records were all deleted can begin with any
    sequence number, because a leader that was added later does not know it (KIP-360)."""

    def __init__(self) -> None:
        super().__init__()
        self._logs: dict[tuple[str, int], list[Entry]] = {}
        # For each log and producer: the producer's epoch, its next sequence number, and the end of its last batch.
        self._next: dict[tuple[str, int], dict[int, tuple[int, int, int]]] = {}

    def log(self, seen: ReplicaLogSeen) -> None:
        key = (seen.log, seen.node)
        known = self._logs.setdefault(key, [])
        kept = bisect_right(known, seen.start, key=lambda entry: entry.end)
        producers = self._next.setdefault(key, {})
        if kept < len(known):
            producers.clear()
            rest = known[:kept]
            known.clear()
            for entry in rest:
                self._follow(known, producers, entry, 0)
        for entry in seen.entries:
            if problem := self._follow(known, producers, entry, self.deleted_below(seen.log)):
                raise self.broken(f"replica {seen.node} of {seen.log} has the batch at {entry.base}: {problem}")

    @staticmethod
    def _follow(known: list[Entry], producers: dict[int, tuple[int, int, int]], entry: Entry, deleted: int) -> str:
        """Appends the entry to `known`. Returns what is wrong with the entry, or an empty string. The records below
        `deleted` were deleted."""
        if known and known[-1].end != entry.base:
            producers.clear()  # the deleted records in between may include batches of these producers
        known.append(entry)
        if entry.producer < 0 or entry.sequence < 0:
            return ""
        who = f"producer {entry.producer}"
        epoch, expected, end = producers.get(entry.producer, (entry.producer_epoch, entry.sequence, entry.base))
        producers[entry.producer] = entry.producer_epoch, entry.sequence + entry.end - entry.base, entry.end
        if end <= deleted:
            return ""
        if entry.producer_epoch < epoch:
            return f"{who} wrote it in epoch {entry.producer_epoch}, after a batch in epoch {epoch}"
        expected = expected if entry.producer_epoch == epoch else 0
        return f"{who} wrote it as {entry.sequence}, not {expected}" if entry.sequence != expected else ""

    sees: ClassVar = {RecordsDeleted: Deletions.deleted, ReplicaLogSeen: log}


class NoRecordTwice(Checker):
    """Each value is at only one offset of one log. An idempotent producer may send a batch again, but the log holds the
    batch once."""

    def __init__(self) -> None:
        self._places: dict[bytes, tuple[str, int]] = {}

    def record(self, seen: RecordAcknowledged | RecordRead) -> None:
        self._stands(seen.value, seen.log, seen.offset)

    def survived(self, seen: LogSurvived) -> None:
        for offset, value in seen.records.items():
            self._stands(value, seen.log, offset)

    def _stands(self, value: bytes, log: str, offset: int) -> None:
        place = self._places.setdefault(value, (log, offset))
        if place != (log, offset):
            raise self.broken(f"{value!r} is at offset {offset} of {log}, and also at offset {place[1]} of {place[0]}")

    sees: ClassVar = {RecordAcknowledged: record, RecordRead: record, LogSurvived: survived}


class ProducersGoOn(Checker):
    """A leader stores the last batches of each producer, so it never refuses a producer's next batch or a repeated
    batch. Two kinds of leaders may refuse a batch: a leader that has lost records, and a deposed leader that lacks the
    last batches and has not learned of its successor."""

    def __init__(self) -> None:
        self._newest = -1
        self._leaders: dict[str, int] = {}

    def image(self, seen: ImageSeen) -> None:
        if seen.offset > self._newest:
            self._newest = seen.offset
            partitions: Any = seen.contents.get("partitions", {})
            self._leaders = {f"{topic}-{index}": row[0] for (topic, index), row in partitions.items()}

    def refused(self, seen: ProducerRefused) -> None:
        if self._leaders.get(seen.log) == seen.node:
            raise self.broken(f"broker {seen.node} leads {seen.log}, but refused an idempotent producer: {seen.error}")

    sees: ClassVar = {ImageSeen: image, ProducerRefused: refused}


class AcknowledgedInOrder(Checker):
    """A record gets a higher offset than every record of the log that was acknowledged before the client sent the new
    record."""

    def __init__(self) -> None:
        # For each log, a list of pairs: the time of an acknowledgement, and the highest offset that was acknowledged by
        # that time. Both values grow along the list.
        self._heard: dict[str, list[tuple[int, int]]] = {}

    def acknowledged(self, seen: RecordAcknowledged) -> None:
        heard = self._heard.setdefault(seen.log, [])
        before = bisect_left(heard, (seen.sent_ns, -1))
        if before and seen.offset <= heard[before - 1][1]:
            raise self.broken(
                f"{seen.value!r} is at offset {seen.offset} of {seen.log}, but the record at {heard[before - 1][1]} "
                "was acknowledged before it was sent"
            )
        highest = max(seen.offset, heard[-1][1] if heard else -1)
        heard.append((seen.heard_ns, highest))

    sees: ClassVar = {RecordAcknowledged: acknowledged}


class ReadsAreWhole(Checker):
    """A read returns every record from its offset, without a gap and undamaged. It returns no record at or above the
    high watermark."""

    def read(self, seen: LogRead) -> None:
        if not seen.is_whole:
            raise self.broken(f"a read of {seen.log} from {seen.at} returned a batch that is damaged")
        if seen.offsets != tuple(range(seen.at, seen.at + len(seen.offsets))):
            raise self.broken(f"a read of {seen.log} from {seen.at} returned the offsets {seen.offsets}")
        if seen.offsets and seen.offsets[-1] >= seen.high_watermark:
            raise self.broken(
                f"a read of {seen.log} returned the record at {seen.offsets[-1]}, but the high "
                f"watermark was {seen.high_watermark}"
            )

    sees: ClassVar = {LogRead: read}


class CommitsNeverGoBack(Checker):
    """The committed offset of a group is never below an acknowledged commit, and never above the highest commit that
    was sent."""

    def fetched(self, seen: CommitFetched) -> None:
        if not seen.floor <= seen.offset <= seen.ceiling:
            raise self.broken(
                f"group {seen.group} has committed {seen.offset} of {seen.log}; {seen.floor} was acknowledged before, "
                f"and {seen.ceiling} was the last that was sent"
            )

    sees: ClassVar = {CommitFetched: fetched}
