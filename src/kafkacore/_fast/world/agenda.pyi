"""The native part of a simulated world: the work of the nodes' native threads, and the bells that take the place of
eventfds.
"""

# Whether tasks can pause. False in builds with AddressSanitizer or ThreadSanitizer. In such a build, a task runs to its
# end in its first turn, and disk operations of native code take no simulated time.
PAUSES: bool

class SimulatedAgenda:
    """Runs the work of native threads as tasks. Only the thread that runs the world may use this object. Nodes join the
    agenda through their environments.

    Whenever the world's time advances, the world's loop sets `now_ns` and calls `run_due`. A task waits at most
    `most_start_ns` for its first turn. The seed decides how long it waits.
    """

    now_ns: int
    def __init__(self, seed: int = 0, *, most_start_ns: int = 50_000) -> None: ...
    @property
    def waiting(self) -> int:
        """The number of waiting tasks."""

    @property
    def next_ns(self) -> int:
        """The time at which the next waiting task is due, or -1 if no task waits."""

    @property
    def turns(self) -> int:
        """The number of turns of tasks so far."""

    def run_due(self) -> int:
        """Runs the tasks that are due at `now_ns`, in the order of their due times. Returns the number of turns."""

    def run_one(self, index: int) -> None:
        """Runs one turn of a waiting task, even if it is not due yet. Index 0 is the task that has waited longest.
        Raises IndexError."""

    def run_for(self, owner: int) -> int:
        """Runs the tasks of the environment with number `owner` until none of them waits, even if they are not due yet.
        This ends the tasks of a node whose disk is dead, because all operations of these tasks fail. Returns the number
        of turns."""

    def stop(self, owner: int) -> None:
        """Stops the tasks of the environment with number `owner` until `go_on`, as SIGSTOP stops the threads of a
        process. Only `run_for` still runs these tasks."""

    def go_on(self, owner: int) -> None: ...
    def rung(self) -> list[int]:
        """Returns the ringing bells, in the order in which they were rung. The code that handles a bell must silence
        it."""

    def ring(self, bell: int) -> None:
        """Rings a bell again, to simulate a spurious wake-up."""
