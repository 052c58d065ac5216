from kafkacore._fast.wait.io import LogDirectory

def await_checkpoints(directory: LogDirectory, wanted: bool) -> None:
    """Whether a thread checkpoints the recovery points of the directory when `take` has logs. Then a log that is
    truncated below the recovery point in the file takes no append until that is done."""

def take(directory: LogDirectory) -> CutLogs | None:
    """The logs that wait for a checkpoint. Call it when the directory's `fileno` is readable; one thread at a time."""

class CutLogs:
    """Logs that were truncated and wait until their recovery points are on disk. They go on when it is freed, at the
    latest."""

    def __len__(self) -> int: ...
    def go_on(self) -> None: ...
