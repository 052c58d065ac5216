"""A simulated disk for native code and, as `runtime.files.Files`, for Python."""

from typing_extensions import Buffer

from kafkacore._fast.world.agenda import SimulatedAgenda
from kafkacore._fast.world.environment import Environment, ManualClock

class HeldLock:
    def close(self) -> None: ...

class SimulatedDisk:
    """A disk in memory. `environment` gives native code a world with this disk; the object itself is `Files`.

    Paths are plain names: there is no current directory. Raises OSError as the operating system does. The seed decides
    durations, faults and rot; the seed of `restart` decides what survives a power cut.
    """

    def __init__(self, seed: int = 0) -> None: ...
    def environment(
        self, clock: ManualClock | None = None, agenda: SimulatedAgenda | None = None, seed: int | None = None
    ) -> Environment:
        """A world with this disk: with an agenda a simulated world, else the real one. `clock` replaces its clock.

        In a simulated world the environment is that of one process: the disk refuses it after `restart` and `kill`."""

    def cut_power_at(self, operation: int) -> None:
        """Cuts the power during the operation with this number (see `operations`); -1: never."""

    def cut_power(self) -> None:
        """Cuts the power now: every operation fails until `restart`."""

    def restart(self, seed: int = 0, ordered: bool = True) -> None:
        """Turns the power on again. The seed decides which of the unsynced changes survive. If changes of names are
        `ordered`, the first of them survive, as in a journal; otherwise any of them may, as POSIX allows."""

    def kill(self) -> None:
        """Ends the process that uses the disk. Its writes stay, as in the page cache; its locks are released. Its
        handles and its environment in a simulated world get EIO from now on."""

    @property
    def operations(self) -> int:
        """The number of operations that changed something; `cut_power_at` counts them."""

    @property
    def is_dead(self) -> bool: ...
    def fail(self, kind: str, error: int = ..., after: int = 0, share: float = 1.0) -> None:
        """Lets operations of a kind (read, write, sync, names) fail after `after` more successes: all, or a `share`
        (0 to 1) of them. `error` 0 ends that. A sync that fails may have written any part of its bytes. No later sync
        writes the rest."""

    def pace(self, kind: str, least_us: int, most_us: int | None = None) -> None:
        """Sets how long operations of a kind take: from `least_us` to `most_us`, all lengths equally likely. In a
        simulated world that is virtual time."""

    def take_spent_ns(self) -> int:
        """In a simulated world, the time of operations for which no native task waited, since the last call. Python
        makes such operations, and so does native code on the thread of the world itself."""

    def rot(self, share: float) -> None:
        """From now on this share (0 to 1) of the reads first changes one bit of the file, for good."""

    def limit(self, capacity_bytes: int | None = None) -> None:
        """Sets the capacity. A write beyond it writes the part that fits and fails with ENOSPC; None: unlimited."""

    def slow_down(self, delay_us: int) -> None:
        """Lets every operation take this much longer than its pace."""

    def cool(self, cold: bool = True) -> None:
        """Empties the page cache: a file is in it after its first read."""

    def synced(self, path: str) -> bytes:
        """The bytes of a file that would survive any power cut at this moment. Raises FileNotFoundError when its name
        is not synced."""

    def read(self, path: str) -> bytes: ...
    def write(self, path: str, data: Buffer) -> None: ...
    def read_part(self, path: str, position: int, max_bytes: int) -> bytes: ...
    def write_part(self, path: str, position: int, data: Buffer) -> None: ...
    def sync(self, path: str) -> None: ...
    def size(self, path: str) -> int: ...
    def rename(self, old: str, new: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def remove_directory(self, path: str) -> None: ...
    def sync_directory(self, path: str) -> None: ...
    def make_directories(self, path: str) -> None: ...
    def list_directories(self, path: str) -> list[str]: ...
    def list(self, path: str) -> list[str]: ...
    def is_directory(self, path: str) -> bool: ...
    def exists(self, path: str) -> bool: ...
    def lock(self, path: str) -> HeldLock: ...
