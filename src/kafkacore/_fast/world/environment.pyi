from collections.abc import Sequence

from kafkacore._fast.world.agenda import SimulatedAgenda

def list_directory(path: str, only_directories: bool = False) -> list[str]:
    """Returns the sorted names in a directory. With `only_directories`, returns only the names of directories. Releases
    the GIL once. Raises OSError."""

def list_each(paths: Sequence[str], only_directories: bool = False) -> list[list[str]]:
    """Lists many directories. Releases the GIL only once for all of them, because taking the GIL costs more than
    listing a directory. Raises OSError for the first directory that cannot be read."""

class ManualClock:
    def __init__(self, wall_ms: int = ..., monotonic_ns: int = ...) -> None: ...
    def advance_ms(self, ms: float) -> None: ...
    def advance_ns(self, ns: int) -> None: ...
    def step_wall_ms(self, ms: int) -> None: ...
    def monotonic_ns(self) -> int: ...
    def wall_ms(self) -> int: ...

class RunningClock(ManualClock):
    def __init__(self) -> None: ...

class Environment:
    """The clock, disk and network of a node. With an agenda, the node lives in a simulated world, in which native code
    starts no threads and opens no file descriptors. Without an agenda, the node lives in the real world. `clock`
    replaces the clock in both worlds.

    In a simulated world, `seed` determines what `random_bytes` returns. If `seed` is None, the agenda's seed does.
    """

    def __init__(
        self, clock: ManualClock | None = None, agenda: SimulatedAgenda | None = None, seed: int | None = None
    ) -> None: ...
    @property
    def is_simulated(self) -> bool: ...
    @property
    def owner(self) -> int:
        """The number of the node in its simulated world (see `SimulatedAgenda.run_for`). 0 in the real world."""

    def random_bytes(self, count: int) -> bytes:
        """Returns random bytes. In the real world they come from the operating system, so nobody can predict them. In a
        simulated world the seed determines them."""
    def monotonic_ns(self) -> int: ...
    def wall_ms(self) -> int: ...
