from kafkacore._fast.wait.io import LogDirectory

def await_checkpoints(directory: LogDirectory, wanted: bool) -> None:
    """Declares whether a thread checkpoints the recovery points of the directory whenever `take` returns logs. If so, a
    log that is truncated below its checkpointed recovery point accepts no append until the new recovery point is on
    disk."""

def take(directory: LogDirectory) -> CutLogs | None:
    """Returns the logs that wait for a checkpoint, or None. Call this when the directory's `fileno` is readable. Only
    one thread at a time may call this."""

class CutLogs:
    """Truncated logs that wait until their recovery points are on disk. They continue when `go_on` is called, or at the
    latest when this object is freed."""

    def __len__(self) -> int: ...
    def go_on(self) -> None: ...
