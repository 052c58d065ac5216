"""Log directories, and the threads that wait for their devices."""

from kafkacore._fast.world.environment import Environment

class LogDirectory:
    """An entry of `log.dirs`: its path, the threads that wait for its device, and whether it is online.

    `threads` is the largest number of threads in the pool. `nice` lowers the priority of its jobs. With `urgent`, its
    threads run as soon as they are woken. Raises OSError and ValueError.
    """

    def __init__(
        self, environment: Environment, path: str | bytes, threads: int = 8, *, nice: int = 0, urgent: bool = False
    ) -> None: ...
    def close(self) -> None:
        """Finishes the queued jobs and ends the threads. Later jobs are refused. A second call has no effect."""

    @property
    def environment(self) -> Environment: ...
    @property
    def path(self) -> str: ...
    @property
    def offline_errno(self) -> int:
        """The errno of the error that took the directory offline; 0 while it is online."""

    def fileno(self) -> int:
        """Returns a file descriptor that becomes readable when the directory goes offline."""

    @property
    def queued_jobs(self) -> int: ...
    @property
    def syncs(self) -> tuple[int, int]:
        """The number of commits, and the total time that they took, in ns."""

    def fail(self, error: int) -> None:
        """Takes the directory offline, as an I/O error does."""

def live_count() -> int:
    """Returns the number of open log directories in this process."""

def company_wait(asked: int, company: int, since_ns: int, took_ns: int) -> int:
    """Returns how long, in ns, a commit waits for more requests before it begins.

    `asked` requests wait for this commit. `company` requests waited for the last commit, which ended `since_ns` ago and
    took `took_ns`.
    """
