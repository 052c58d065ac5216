"""A simulated disk, for native code and, through the protocol `runtime.files.Files`, for Python code."""

from typing_extensions import Buffer

from kafkacore._fast.world.agenda import SimulatedAgenda
from kafkacore._fast.world.environment import Environment, ManualClock

class HeldLock:
    def close(self) -> None: ...

class SimulatedDisk:
    """A disk in memory. `environment` returns the Environment through which native code uses this disk. For Python
    code, the disk itself implements the `Files` protocol.

    Paths are plain names, because there is no current directory. Operations raise OSError as the operating system does.
    `seed` determines durations, faults and the bits that rot. The seed of `restart` determines what survives a power
    cut.
    """

    def __init__(self, seed: int = 0) -> None: ...
    def environment(
        self, clock: ManualClock | None = None, agenda: SimulatedAgenda | None = None, seed: int | None = None
    ) -> Environment:
        """Returns an environment with this disk. With an agenda, it belongs to the simulated world, otherwise to the
        real world. `clock` replaces its clock.

        In a simulated world, the environment belongs to one process: after `restart` or `kill`, operations through this
        environment fail."""

    def cut_power_at(self, operation: int) -> None:
        """Cuts the power during the operation with this number (see `operations`). -1 means never."""

    def cut_power(self) -> None:
        """Cuts the power now. Every operation fails until `restart`."""

    def restart(self, seed: int = 0, ordered: bool = True) -> None:
        """Turns the power on again. The seed determines which of the unsynced changes survive. With `ordered`, all
        unsynced changes of names up to a random one survive, as in a journal. Otherwise any subset of these changes
        survives, as POSIX allows."""

    def kill(self) -> None:
        """Simulates the end of the process that uses the disk. The writes of the process remain, as they do in the page
        cache. Its file locks are released. From now on, operations through its file handles, or through its environment
        in a simulated world, fail with EIO."""

    @property
    def operations(self) -> int:
        """The number of operations that changed something. `cut_power_at` uses this count."""

    @property
    def is_dead(self) -> bool: ...
    def fail(self, kind: str, error: int = ..., after: int = 0, share: float = 1.0) -> None:
        """Makes operations of a kind (read, write, sync, names) fail after `after` more successes. `share` (0 to 1) is
        the share of these operations that fail. An `error` of 0 lets them succeed again. A sync that fails may have
        written any part of its bytes, and no later sync writes the rest."""

    def pace(self, kind: str, least_us: int, most_us: int | None = None) -> None:
        """Sets how long operations of a kind take: from `least_us` to `most_us`, uniformly distributed. In a simulated
        world, this is virtual time."""

    def take_spent_ns(self) -> int:
        """Returns the virtual time, in ns, that operations have taken since the last call of this method. Counts only
        operations for which no native task waited: operations of Python code, and of native code that runs outside a
        task, on the thread of the world."""

    def rot(self, share: float) -> None:
        """Makes the disk rot: from now on, this share (0 to 1) of the reads first changes one bit of the file
        permanently."""

    def limit(self, capacity_bytes: int | None = None) -> None:
        """Sets the capacity of the disk. A write beyond the capacity writes the part that fits and fails with ENOSPC.
        None means unlimited."""

    def slow_down(self, delay_us: int) -> None:
        """Delays every operation by `delay_us`, in addition to the time that `pace` sets."""

    def cool(self, cold: bool = True) -> None:
        """Empties the page cache. From then on, a file is in the page cache after its first read. If `cold` is false,
        puts all files into the page cache instead."""

    def synced(self, path: str) -> bytes:
        """Returns the bytes of a file that would survive any power cut at this moment. Raises FileNotFoundError if the
        file's name has not been synced."""

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
