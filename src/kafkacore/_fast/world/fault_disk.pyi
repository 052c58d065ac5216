"""A real disk that fills up, fails and slows down on order."""

from kafkacore._fast.world.environment import Environment, ManualClock

FAULT_KINDS: tuple[str, ...]

class FaultDisk:
    """Its files are real files. Any thread may order faults while a node uses the disk."""

    def __init__(self) -> None: ...
    def environment(self, clock: ManualClock | None = None) -> Environment:
        """The real world with this disk and, if given, this clock."""

    def fail(self, kind: str, error: int) -> None:
        """Lets operations of a kind (read, write, sync, names) fail with an errno; 0 ends that. Raises ValueError."""

    def limit(self, room_bytes: int | None) -> None:
        """Sets how many more bytes may be written. A write beyond that writes the part that fits and fails with ENOSPC;
        None removes the limit."""

    def slow_down(self, delay_us: int) -> None:
        """Lets every operation that may reach the device take this much longer, from 0 to below 1 s. Raises
        ValueError."""

    @property
    def hits(self) -> int:
        """Operations that failed on order so far."""
