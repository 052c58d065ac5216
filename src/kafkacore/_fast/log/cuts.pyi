from kafkacore._fast.wait.io import LogDirectory

def await_checkpoints(directory: LogDirectory, wanted: bool) -> None:
    """Declares whether a thread checkpoints the recovery points and the log start offsets of the directory whenever
    `take` returns logs. If so, a log that is truncated below one of its checkpointed offsets accepts no append until
    its new offsets are on disk."""

def take(directory: LogDirectory) -> CutLogs | None:
    """Returns the logs that wait for a checkpoint, or None. Call this when the directory's `fileno` is readable. Only
    one thread at a time may call this."""

class CutLogs:
    """Truncated logs that wait until their offsets are on disk. They continue when `go_on` is called, or at the
    latest when this object is freed."""

    def __len__(self) -> int: ...
    def go_on(self) -> None: ...
