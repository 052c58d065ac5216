"""Loads of logs for Python. Functions that wait for a device release the GIL meanwhile."""

from typing import NamedTuple

from kafkacore._fast.log.partition_handle import PartitionHandle

class LoadReport(NamedTuple):
    recovered_bytes: int
    truncated_bytes: int
    recovered_segments: int
    dropped_segments: int

class Damage(NamedTuple):
    """Where a log is damaged: the base offset of a segment, a byte in it, and the offset of the record there."""

    segment: int
    position: int
    offset: int

class LoadProgress:
    """The progress of any number of loads: bytes and segments looked through so far, and how many segments of the log
    under recovery remain to be checked."""

    def __init__(self) -> None: ...
    @property
    def bytes_done(self) -> int: ...
    @property
    def segments_done(self) -> int: ...
    @property
    def segments_to_recover(self) -> int: ...

class LogFiles:
    """The segments and producer snapshots of a log, from the sorted names of the files in its directory."""

    def __init__(self, names: list[str]) -> None: ...
    @property
    def has_left_overs(self) -> bool:
        """Whether there are files of an unfinished operation (`.deleted`, `.cleaned`, `.swap`), or an index without its
        segment."""

    @property
    def base_offsets(self) -> list[int]: ...

def read_topic_ids(handles: list[PartitionHandle]) -> list[bool]:
    """Reads the topic id of each log from partition.metadata, before its load. Blocking; releases the GIL once for all
    logs. False: the file is missing, or is not as Kafka writes it."""

class LogLoad:
    """Loads a log from its directory before its first use. Unless `clean`, it checks and rebuilds what lies behind the
    recovery point; compaction may have left gaps below `gaps_until`. When records below `trusted_until` are damaged, no
    record is removed: the load fails with EUCLEAN. A clean log has no file open until its first use; with `at_rest`
    this holds for every log."""

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
        """The damage, after a load that failed with EUCLEAN."""

    def report(self) -> LoadReport:
        """The result, once the load has run. Raises OSError."""

def run(loads: list[LogLoad]) -> None:
    """Runs one load after the other. Blocking; releases the GIL once for all of them."""
