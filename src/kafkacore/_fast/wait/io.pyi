"""Log directories: the threads that wait for their devices."""

from kafkacore._fast.world.environment import Environment

class LogDirectory:
    """An entry of `log.dirs`: its path, the threads that wait for its device, and whether it serves.

    `threads` bounds the pool, `nice` lowers the priority of its jobs, `urgent` has its threads run as soon as they are
    woken. Raises OSError, ValueError.
    """

    def __init__(
        self, environment: Environment, path: str | bytes, threads: int = 8, *, nice: int = 0, urgent: bool = False
    ) -> None: ...
    def close(self) -> None:
        """Finishes queued jobs and ends the threads; refuses later ones. Idempotent."""

    @property
    def environment(self) -> Environment: ...
    @property
    def path(self) -> str: ...
    @property
    def offline_errno(self) -> int:
        """The errno that took the directory offline; 0 while it serves."""

    def fileno(self) -> int:
        """Becomes readable when the directory goes offline."""

    @property
    def queued_jobs(self) -> int: ...
    @property
    def syncs(self) -> tuple[int, int]:
        """The number of commits, and the nanoseconds spent in them."""

    def fail(self, error: int) -> None:
        """Takes the directory offline, as an I/O error does."""

def live_count() -> int:
    """The number of open log directories in this process."""

def company_wait(asked: int, company: int, since_ns: int, took_ns: int) -> int:
    """How long, in ns, a commit waits for more requests before it begins.

    `asked` requests wait for it. `company` requests waited for the last commit, which ended `since_ns` ago and took
    `took_ns`.
    """
