"""Loads logs from their directories, for Python callers. Functions that can wait for the disk release the GIL while
they wait."""

from typing import NamedTuple

from kafkacore._fast.log.partition_handle import PartitionHandle

class LoadReport(NamedTuple):
    recovered_bytes: int
    truncated_bytes: int
    recovered_segments: int
    dropped_segments: int

class Damage(NamedTuple):
    """Where a log is damaged: the base offset of a segment, the position of a byte in the segment, and the offset of
    the record at that position."""

    segment: int
    position: int
    offset: int

class LoadProgress:
    """The progress of any number of loads. `bytes_done` and `segments_done` count what the loads have checked so far.
    `segments_to_recover` counts the segments that are still to be recovered in the log that is being loaded now."""

    def __init__(self) -> None: ...
    @property
    def bytes_done(self) -> int: ...
    @property
    def segments_done(self) -> int: ...
    @property
    def segments_to_recover(self) -> int: ...
    def abandon(self) -> None:
        """Ends the recovery of logs before their next segments. These loads fail with ECANCELED."""

class LogFiles:
    """The segments and producer snapshots of a log, from the sorted names of the files in its directory."""

    def __init__(self, names: list[str]) -> None: ...
    @property
    def has_left_overs(self) -> bool:
        """Whether the directory has files of an unfinished operation (`.deleted`, `.cleaned`, `.swap`), or an index
        without its segment."""

    @property
    def base_offsets(self) -> list[int]: ...

def read_topic_ids(handles: list[PartitionHandle]) -> list[bool]:
    """Reads the topic id of each log from partition.metadata, before the log is loaded. Blocking; releases the GIL once
    for all logs. Returns False for each log whose file is missing or is not as Kafka writes it."""

class LogLoad:
    """Loads a log from its directory, before the first use of the log. `run` does the work. Without `clean`, the load
    checks the segments after the recovery point and rebuilds their indexes. Compaction may have left gaps below
    `gaps_until`. If records below `trusted_until` are damaged, the load removes no record and fails with EUCLEAN. A
    clean log has no file open until its first use; with `at_rest`, this holds for every log."""

    def __init__(
        self,
        handle: PartitionHandle,
        found: LogFiles,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        trusted_until: int = 0,
        gaps_until: int = 0,
        clean: bool = False,
        at_rest: bool = False,
        progress: LoadProgress | None = None,
    ) -> None: ...
    @property
    def handle(self) -> PartitionHandle: ...
    @property
    def damage(self) -> Damage:
        """The place of the damage, after a load that failed with EUCLEAN."""

    def report(self) -> LoadReport:
        """Returns the result of the load. Call this after `run`. Raises OSError if the load failed."""

def run(loads: list[LogLoad]) -> None:
    """Performs the loads one after the other. Blocking; releases the GIL once for all of them."""
