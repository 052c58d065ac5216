"""The native half of a simulated world: the work of its nodes' native threads, and the bells that ring."""

# False under AddressSanitizer and ThreadSanitizer: there a task runs to its end in its first turn, and disk operations
# of native code take no time.
PAUSES: bool

class SimulatedAgenda:
    """Belongs to the thread that runs the world. Nodes join it by their environments.

    The world's loop sets `now_ns` whenever its time moves, and calls `run_due`. A task waits at most `most_start_ns`
    for its first turn; the seed decides how long.
    """

    now_ns: int
    def __init__(self, seed: int = 0, *, most_start_ns: int = 50_000) -> None: ...
    @property
    def waiting(self) -> int:
        """The number of tasks that wait."""

    @property
    def next_ns(self) -> int:
        """When the first of them is due; -1: none waits."""

    @property
    def turns(self) -> int:
        """How often a task has run so far."""

    def run_due(self) -> int:
        """Runs the tasks that are due at `now_ns`, in order of time, and returns how many turns there were."""

    def run_one(self, index: int) -> None:
        """Runs the waiting task with this number, counted from the one that waits longest, whenever it is due. Raises
        IndexError."""

    def run_for(self, owner: int) -> int:
        """Runs the tasks of the environment with this number until none waits, whenever they are due. With it the tasks
        of a node whose disk is dead come to an end, because each of their operations fails. Returns how many turns
        there were."""

    def stop(self, owner: int) -> None:
        """The tasks of the environment with this number do not run until `go_on`, like the threads of a process that
        got SIGSTOP. Only `run_for` runs them."""

    def go_on(self, owner: int) -> None: ...
    def rung(self) -> list[int]:
        """The bells that ring, in the order in which they were rung. Code that serves a bell silences it."""

    def ring(self, bell: int) -> None:
        """Rings a bell again, as a spurious wake-up does."""
