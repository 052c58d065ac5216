"""The threads that all nodes in a process share: processors, acceptors and handler loops. An idle processor may spin
(poll without sleeping) for a short time, and the Runtime limits this spinning.

A node takes a share of the Runtime with `Runtime.shared()`, and returns it with `release`. The last `release` ends the
threads. Threads start when a plane of their kind first needs them.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import ClassVar, Final, Protocol

from kafkacore._fast.base.errors import ForkedNodeError
from kafkacore._fast.plane.acceptor import NativeAcceptor
from kafkacore._fast.plane.processor import NativeProcessor, SpinBudget
from kafkacore._fast.world.environment import Environment
from kafkacore.runtime.loops import LoopThread

DATA: Final = "data"
CONTROLLER: Final = "controller"
CONTROL: Final = "control"

SPIN_US: Final = 80
# Data processors have a lower priority than all threads that can hold the GIL. So event loops, and all threads of the
# control plane, run as soon as they are woken.
DATA_NICE: Final = 5


class _Inheritable(Protocol):
    def close_inherited(self) -> None: ...


class Runtime:
    """The threads of a process that serve planes. A child process after fork has none of these threads, so any use of
    the Runtime there raises ForkedNodeError.

    `data_processors` threads serve the data planes. None means one thread for every two cores, at least 1 and at most
    8. An idle processor spins for `spin_us` before it sleeps. If `spin_us` is 0, it never spins. Only one processor at
    a time spins.
    """

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _shared: ClassVar[Runtime | None] = None

    def __init__(
        self, data_processors: int | None = None, spin_us: int = SPIN_US, environment: Environment | None = None
    ) -> None:
        self.environment = environment or Environment()
        self.spin_budget = SpinBudget(spin_us)
        self._pid = os.getpid()
        self._data_processors = data_processors or default_processors()
        self._processors: dict[str, list[NativeProcessor]] = {}
        self._acceptors: dict[str, NativeAcceptor] = {}
        self._loops: dict[str, LoopThread] = {}
        self._users = 0
        self._mutex = threading.Lock()
        self._planes: weakref.WeakSet[_Inheritable] = weakref.WeakSet()
        _RUNTIMES.add(self)

    @classmethod
    def shared(cls, data_processors: int | None = None) -> Runtime:
        """Returns the Runtime that all nodes of the process share. The caller must call `release` once for each call of
        `shared`. `data_processors` is num.network.threads, if the node sets this key. A later node can raise the
        number, but not lower it."""
        with cls._lock:
            if cls._shared is None or cls._shared._pid != os.getpid():
                cls._shared = cls(data_processors)
            cls._shared._grow(data_processors or 0)
            cls._shared._users += 1
            return cls._shared

    def _grow(self, data_processors: int) -> None:
        with self._mutex:
            self._data_processors = max(self._data_processors, data_processors)

    @property
    def data_processors(self) -> int:
        """Returns the number of processors that a data plane would get if it started now."""
        with self._mutex:
            return self._data_processors

    def release(self) -> None:
        """Gives one share back. When the last share is given back, the threads stop."""
        with Runtime._lock:
            self._users -= 1
            if self._users > 0:
                return
            if Runtime._shared is self:
                Runtime._shared = None
        self.close()

    def processors(self, kind: str) -> list[NativeProcessor]:
        """Returns the processors for planes of a kind: several for data planes, one for each other kind (KIP-291)."""
        with self._mutex:
            self._check()
            count, nice = (self._data_processors, DATA_NICE) if kind == DATA else (1, 0)
            made = self._processors.setdefault(kind, [])
            for number in range(len(made), count):
                name = f"kc-{kind}-{number}"
                made.append(NativeProcessor(name, self.environment, self.spin_budget, nice, urgent=kind != DATA))
            # A plane keeps the processors with which it started, even if a later plane gets more processors.
            return list(made)

    def acceptor(self, kind: str) -> NativeAcceptor:
        with self._mutex:
            self._check()
            if kind not in self._acceptors:
                self._acceptors[kind] = NativeAcceptor(f"kc-acc-{kind}")
            return self._acceptors[kind]

    def loop(self, kind: str) -> LoopThread:
        """Returns the loop that runs the handlers of planes of a kind."""
        with self._mutex:
            self._check()
            if kind not in self._loops:
                self._loops[kind] = LoopThread(f"kc-loop-{kind}")
            return self._loops[kind]

    def close(self) -> None:
        """Ends all threads. All planes must already be closed."""
        if os.getpid() != self._pid:
            return
        with self._mutex:
            for acceptor in self._acceptors.values():
                acceptor.stop()
            for loop in self._loops.values():
                loop.stop()
            for processors in self._processors.values():
                for processor in processors:
                    processor.stop()
            self._acceptors.clear()
            self._loops.clear()
            self._processors.clear()

    def watch_fork(self, plane: _Inheritable) -> None:
        """Calls `plane.close_inherited()` in every child after fork."""
        self._planes.add(plane)

    def close_inherited(self) -> None:
        """Closes inherited connections and ports. Runs in a child process after fork."""
        for plane in tuple(self._planes):
            plane.close_inherited()
        for processors in self._processors.values():
            for processor in processors:
                processor.close_inherited()

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedNodeError(
                f"the threads of process {self._pid} are not in its child {os.getpid()}: "
                "create nodes in the process that uses them, or start that process with exec"
            )


_RUNTIMES: Final[weakref.WeakSet[Runtime]] = weakref.WeakSet()


def _close_inherited() -> None:
    for runtime in tuple(_RUNTIMES):
        runtime.close_inherited()


os.register_at_fork(after_in_child=_close_inherited)


def default_processors() -> int:
    """Returns the default number of processors of the data plane. Each processor can occupy a core with copying and
    checksums, but handlers need cores too."""
    cores = len(os.sched_getaffinity(0))
    return min(max(cores // 2, 1), 8)
