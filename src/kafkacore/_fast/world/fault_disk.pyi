"""A real disk that fills up, fails or slows down when a test orders it."""

from kafkacore._fast.world.environment import Environment, ManualClock

FAULT_KINDS: tuple[str, ...]

class FaultDisk:
    """A disk with real files and with faults that a test orders. Any thread may order faults while a node uses the
    disk."""

    def __init__(self) -> None: ...
    def environment(self, clock: ManualClock | None = None) -> Environment:
        """Returns an environment of the real world with this disk and, if given, this clock."""

    def fail(self, kind: str, error: int) -> None:
        """Makes operations of a kind (read, write, sync, names) fail with an errno. An `error` of 0 lets them succeed
        again. Raises ValueError."""

    def limit(self, room_bytes: int | None) -> None:
        """Sets the number of bytes that can still be written. A write beyond the limit writes the part that fits and
        fails with ENOSPC. None removes the limit."""

    def slow_down(self, delay_us: int) -> None:
        """Delays every operation that may reach the device. `delay_us` must be at least 0 and less than 1 s. Raises
        ValueError."""

    @property
    def hits(self) -> int:
        """The number of operations that have failed so far because of an order."""
