"""A simulated disk for native code and, as `runtime.files.Files`, for Python."""

from typing_extensions import Buffer

from kafkacore._fast.env import Environment, ManualClock

class HeldLock:
    def lend(self) -> None: ...
    def close(self) -> None: ...

class SimulatedDisk:
    """A disk in memory. `environment` gives native code the world with this disk in it; the object itself is `Files`.

    Paths are plain names: there is no current directory. Raises OSError as the operating system does.
    """

    def __init__(self) -> None: ...
    def environment(self, clock: ManualClock | None = None) -> Environment:
        """The real world, but for this disk and, where it is given, the clock."""

    def cut_power_at(self, operation: int) -> None:
        """The power goes out under the operation of this number (see `operations`); -1: it stays."""

    def cut_power(self) -> None:
        """Now: every operation fails until `restart`."""

    def restart(self, seed: int = 0, ordered: bool = True) -> None:
        """The power comes back, and the seed decides what is left of everything that was not synced: of names the first
        of the changes, as a journal keeps them, or any of them where they are not `ordered`, as POSIX allows."""

    @property
    def operations(self) -> int:
        """Operations so far that change something: what `cut_power_at` counts."""

    @property
    def is_dead(self) -> bool: ...
    def fail(self, kind: str, error: int = ..., after: int = 0) -> None:
        """Operations of a kind (read, write, sync, names) fail, once `after` more have gone well; error 0: no more."""

    def limit(self, capacity_bytes: int | None = None) -> None:
        """A write beyond it fails with ENOSPC, after what fits; None: unlimited."""

    def slow_down(self, delay_us: int) -> None:
        """Every operation takes so long."""

    def cool(self, cold: bool = True) -> None:
        """Nothing is in the page cache until it is read once."""

    def read(self, path: str) -> bytes: ...
    def write(self, path: str, data: Buffer) -> None: ...
    def read_part(self, path: str, position: int, max_bytes: int) -> bytes: ...
    def write_part(self, path: str, position: int, data: Buffer) -> None: ...
    def sync(self, path: str) -> None: ...
    def size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int:
        """This disk has no clock."""

    def rename(self, old: str, new: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def remove_directory(self, path: str) -> None: ...
    def sync_directory(self, path: str) -> None: ...
    def make_directories(self, path: str) -> None: ...
    def list_directories(self, path: str) -> list[str]: ...
    def list(self, path: str) -> list[str]: ...
    def is_directory(self, path: str) -> bool: ...
    def exists(self, path: str) -> bool: ...
    def lock(self, path: str, *, lent: bool = False) -> HeldLock: ...
