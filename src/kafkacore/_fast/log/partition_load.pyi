"""Loads of logs as Python asks for them. What waits for a device lets go of the GIL meanwhile."""

from typing import NamedTuple

from kafkacore._fast.log.partition_handle import PartitionHandle

class LoadReport(NamedTuple):
    recovered_bytes: int
    truncated_bytes: int
    recovered_segments: int
    dropped_segments: int

class LoadProgress:
    """How far loads have come: bytes and segments looked through so far, of any number of logs; and how many segments
    of the log that is being recovered are yet to be checked."""

    def __init__(self) -> None: ...
    @property
    def bytes_done(self) -> int: ...
    @property
    def segments_done(self) -> int: ...
    @property
    def segments_to_recover(self) -> int: ...

class LogFiles:
    """The segments and producer snapshots of a log, by the sorted names of the files in its directory."""

    def __init__(self, names: list[str]) -> None: ...
    @property
    def has_left_overs(self) -> bool:
        """Files of something half done (`.deleted`, `.cleaned`, `.swap`), or an index without its segment."""

    @property
    def base_offsets(self) -> list[int]: ...

def read_topic_ids(handles: list[PartitionHandle]) -> list[bool]:
    """Takes the topic id of each log's partition.metadata, before its load. Blocking, and without the GIL from the
    first to the last. False: there is no such file, or it is not as Kafka writes it."""

class LogLoad:
    """Takes up what a directory holds, before the log's first use: unless `clean`, what lies behind the recovery point
    is checked and rebuilt; compaction may have left gaps below `gaps_until`. A clean log has no file open until it is
    used, and with `at_rest` no other has."""

    def __init__(
        self,
        handle: PartitionHandle,
        found: LogFiles,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        gaps_until: int = 0,
        clean: bool = False,
        at_rest: bool = False,
        progress: LoadProgress | None = None,
    ) -> None: ...
    @property
    def handle(self) -> PartitionHandle: ...
    def report(self) -> LoadReport:
        """Once it has run. Raises OSError."""

def run(loads: list[LogLoad]) -> None:
    """One after the other. Blocking, and without the GIL from the first to the last."""
