from collections.abc import Sequence

from kafkacore._fast.world.agenda import SimulatedAgenda

def list_directory(path: str, only_directories: bool = False) -> list[str]:
    """The names in a directory, sorted, or those of the directories in it. Releases the GIL once. Raises OSError."""

def list_each(paths: Sequence[str], only_directories: bool = False) -> list[list[str]]:
    """Lists many directories and releases the GIL once for all of them, because taking it again costs more than one
    listing. Raises OSError for the first that cannot be read."""

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
    """The world of a node. With an agenda it is a simulated one, where native code starts no thread and makes no
    descriptor. Without one it is the real world. `clock` replaces the clock in both.

    In a simulated world `seed` decides what `random_bytes` returns; without one the agenda's seed decides.
    """

    def __init__(
        self, clock: ManualClock | None = None, agenda: SimulatedAgenda | None = None, seed: int | None = None
    ) -> None: ...
    @property
    def is_simulated(self) -> bool: ...
    @property
    def owner(self) -> int:
        """The node's number in its simulated world (`SimulatedAgenda.run_for`); 0 in the real one."""

    def random_bytes(self, count: int) -> bytes:
        """From the system, where nobody can predict them, or from the seed of a simulated world."""
    def monotonic_ns(self) -> int: ...
    def wall_ms(self) -> int: ...
