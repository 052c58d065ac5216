"""A machine: its clocks, which can run fast or slow or jump, and its state (running, paused or off)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkacore._fast.world.environment import ManualClock
from kafkacore.simulation.loop import SimulatedLoop
from kafkacore.simulation.schedule import Schedule

if TYPE_CHECKING:
    from kafkacore.simulation.network import SimulatedNetwork

WALL_MS: Final = 1_700_000_000_000  # the date at the beginning of a run, in ms since 1970
BOOT_NS: Final = 1_000_000_000  # the monotonic clock at the beginning of a run; not 0, as on a real machine


class Machine:
    """A machine during one life of its process. A restart of the process creates a new object.

    `rate` is the speed of the machine's clocks (1.0 is correct). `offset_ms` is the initial error of its wall clock.
    """

    def __init__(
        self,
        schedule: Schedule,
        name: str,
        rate: float = 1.0,
        offset_ms: int = 0,
        network: SimulatedNetwork | None = None,
        work_random: Callable[[float, float], float] = lambda least_s, most_s: most_s,
    ) -> None:
        """The machine's connections use `network`. `work_random` chooses how long work for executors takes."""
        self.schedule = schedule
        self.take_spent_ns: Callable[[], int] = int  # returns the time of blocking disk operations since the last call
        self.network = network
        self.work_random = work_random
        self.name = name
        self.clock = ManualClock(WALL_MS + offset_ms + schedule.now_ns // 1_000_000, BOOT_NS + schedule.now_ns)
        self.is_alive = True
        self.is_paused = False
        self._rate = rate
        self._seen_ns = schedule.now_ns
        self._loops: dict[str, SimulatedLoop] = {}

    def loop(self, kind: str) -> SimulatedLoop:
        """Returns the loop of a kind. The first call creates the loop."""
        made = self._loops.get(kind)
        if made is None:
            made = self._loops[kind] = SimulatedLoop(self, kind)  # type: ignore[abstract]
        return made

    @property
    def rate(self) -> float:
        return self._rate

    def set_rate(self, rate: float) -> None:
        """Sets the speed of the clocks from now on. Timers that are already set keep their times."""
        self.tell_time()
        self._rate = rate

    def tell_time(self) -> None:
        """Sets the clocks to the present virtual time."""
        passed_ns = self.schedule.now_ns - self._seen_ns
        if passed_ns:
            self._seen_ns = self.schedule.now_ns
            self.clock.advance_ns(passed_ns if self._rate == 1.0 else int(passed_ns * self._rate))

    def after(self, delay_s: float) -> int:
        """Returns the virtual time, in ns, at which this machine's clock will have advanced by the delay."""
        return self.schedule.now_ns + max(int(delay_s * 1e9 / self._rate), 0)

    # --- faults ---

    def pause(self) -> None:
        """Pauses the machine, as SIGSTOP does: nothing runs, and arriving data waits."""
        self.is_paused = True

    def resume(self) -> None:
        """Resumes the machine, as SIGCONT does: everything that became due during the pause runs now."""
        if self.is_paused:
            self.is_paused = False
            for loop in self._loops.values():
                loop.wake()

    def kill(self) -> None:
        """Ends the machine, as SIGKILL or a power cut does: none of its callbacks runs again."""
        self.is_alive = False
        for loop in self._loops.values():
            loop.abandon()
