"""A whole node in the simulated world, with its disk. The node can start, stop and fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.config import BrokerConfig
from kafkacore.metadata.image import MetadataImage
from kafkacore.raft.core import Raft
from kafkacore.server.node import Node
from kafkacore.simulation.machine import Machine
from kafkacore.simulation.world import SimulatedWorld

if TYPE_CHECKING:
    from kafkacore.server.broker import BrokerServer
    from kafkacore.server.zookeeper.broker import ZooKeeperBroker
    from kafkacore.simulation.cluster import SimulatedNodes

LOG: Final = logging.getLogger("kafkacore.simulation")


# The shortest and longest durations of disk operations, in microseconds.
PACE_US: Final = {"write": (2, 20), "sync": (100, 4_000), "read": (2, 100), "names": (10, 100)}


class State(Enum):
    """The states in a node's life."""

    OFF = "off"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    FAILED = "failed"  # the node refused to start, or an error stopped it; `error` is the reason


class SimulatedNode:
    """A simulated node. `start` and `stop` only begin the operation. Let the cluster's time run until it is
    complete."""

    def __init__(self, cluster: SimulatedNodes, config: BrokerConfig) -> None:
        self.cluster = cluster
        self.config = config
        self.node_id = config.node_id
        self.name = f"node-{config.node_id}"
        self.disk = SimulatedDisk(cluster.random_of(self.name, "disk").getrandbits(63))
        for kind, (least_us, most_us) in PACE_US.items():
            self.disk.pace(kind, least_us, most_us)
        self.state = State.OFF
        self.lives = 0
        self.error: BaseException | None = None
        self.rate = 1.0
        self.offset_ms = 0
        self.machine: Machine | None = None
        self.server: Node | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        return ("broker",) if self.config.zookeeper_mode else tuple(self.config.process_roles)

    @property
    def is_up(self) -> bool:
        """Returns whether a process of this node exists. The process may be paused, or still starting or stopping."""
        return self.state in (State.STARTING, State.RUNNING, State.PAUSED, State.STOPPING)

    # --- the node's view of the cluster ---

    @property
    def raft(self) -> Raft | None:
        """Returns the Raft core of the running node, or None before the node has started its quorum."""
        replica = None if self.server is None else self.server.replica
        return None if replica is None else replica.raft.__dict__.get("raft")

    @property
    def is_active_controller(self) -> bool:
        """Returns whether this node believes that it is the active controller, even if that is no longer true."""
        if self.zookeeper_broker is not None:
            return self.is_up and self.zookeeper_broker.controller.is_active
        controller = None if self.server is None else self.server.controller_server
        return controller is not None and self.is_up and controller.quorum.active and self.raft is not None

    @property
    def controller_epoch(self) -> int:
        """Returns the epoch in which this node was the active controller last."""
        if self.zookeeper_broker is not None:
            return self.zookeeper_broker.controller.epoch
        return 0 if self.raft is None else self.raft.epoch

    @property
    def zookeeper_broker(self) -> ZooKeeperBroker | None:
        """Returns the broker of a running node in ZooKeeper mode."""
        broker: Any = self._broker
        return broker if self.config.zookeeper_mode else None

    @property
    def controller_image(self) -> MetadataImage | None:
        controller = None if self.server is None else self.server.controller_server
        return None if controller is None else controller.quorum.image

    @property
    def broker_image(self) -> MetadataImage | None:
        if self.config.zookeeper_mode:
            return None if self.zookeeper_broker is None else self.zookeeper_broker.roles
        feed = None if self.server is None else self.server.__dict__.get("_feed")
        return None if feed is None or "broker" not in self.roles else feed.publisher.image

    @property
    def partitions(self) -> list[PartitionHandle]:
        """Returns the replicas on this broker that have a role."""
        return [] if self._broker is None else list(self._broker.replicas.hosted())

    @property
    def _broker(self) -> BrokerServer | None:
        return None if self.server is None else self.server.__dict__["_broker"]

    # --- life ---

    def start(self) -> None:
        """Starts the node. Raises RuntimeError if it is already running."""
        if self.is_up:
            raise RuntimeError(f"{self.name} is {self.state.value}")
        cluster = self.cluster
        self.lives += 1
        self.error = None
        if self.disk.is_dead:
            self.disk.restart(cluster.random_of(self.name, "disk", self.lives).getrandbits(32))
        cluster.network.machine_is_back(self.name)
        self.machine = machine = cluster.new_machine(self.name, self.rate, self.offset_ms)
        random = cluster.random_of(self.name, "world", self.lives)
        world = SimulatedWorld(machine, self.disk, cluster.network, random)
        self.server = Node(self.config, world=world)
        self.server.on_fault = self._fault_of(machine)
        self._become(State.STARTING)
        self._run(machine, self.server.begin, State.RUNNING)

    def stop(self) -> None:
        """Begins an orderly stop."""
        if self.server is None or self.machine is None or not self.is_up:
            raise RuntimeError(f"{self.name} is {self.state.value}")
        self._become(State.STOPPING)
        self._run(self.machine, self.server.end, State.OFF)

    def kill(self) -> None:
        """Kills the process, as SIGKILL does. Bytes that it has written are in the page cache, so they survive."""
        self._die(silent=False)

    def cut_power(self) -> None:
        """Cuts the machine's power. The seed decides which unsynced changes on the disk survive."""
        if self.is_up:
            self.disk.cut_power()
            self._die(silent=True)

    def pause(self) -> None:
        """Pauses the process, as SIGSTOP does."""
        if self.machine is not None and self.state is State.RUNNING:
            self.machine.pause()
            if self.server is not None:
                self.cluster.schedule.agenda.stop(self.server.world.environment.owner)
            self._become(State.PAUSED)

    def resume(self) -> None:
        """Resumes the process, as SIGCONT does."""
        if self.machine is not None and self.state is State.PAUSED:
            self._become(State.RUNNING)
            if self.server is not None:
                self.cluster.schedule.agenda.go_on(self.server.world.environment.owner)
            self.machine.resume()

    def slow_disk(self, ms: float) -> None:
        """Makes every disk operation take `ms` longer, until it is called with 0. A restart of the node does not change
        this."""
        self.disk.slow_down(int(ms * 1000))

    def set_clock(self, rate: float | None = None, jump_ms: int = 0) -> None:
        """Changes the speed of the node's clocks, and moves its wall clock by `jump_ms`."""
        if rate is not None:
            self.rate = rate
        self.offset_ms += jump_ms
        if self.machine is not None and self.is_up:
            self.machine.set_rate(self.rate)
            self.machine.clock.step_wall_ms(jump_ms)

    # --- inside ---

    def _run(self, machine: Machine, steps: Callable[[], Coroutine[Any, Any, None]], then: State) -> None:
        # Create the coroutine only when it runs. Otherwise it would never be awaited if the machine died first.
        async def run() -> None:
            try:
                await steps()
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - the simulation continues, and reports the error
                if machine.is_alive:
                    self._fail(machine, error)
                return
            if machine.is_alive:
                self._become(then)
                if then is State.OFF:
                    self._end_life(machine, silent=False)

        machine.loop("main").create_task(run())

    def _fault_of(self, machine: Machine) -> Callable[[BaseException], None]:
        """Returns the function that stops this node after a fatal error, as a real process would stop."""

        def on_fault(error: BaseException) -> None:
            if machine.is_alive and self.state is State.RUNNING:
                self.cluster.trace("fault", self.name, type(error).__name__, str(error))
                self.error = error
                assert self.server is not None
                self.state = State.STOPPING
                self._run(machine, self.server.end, State.FAILED)

        return on_fault

    def _fail(self, machine: Machine, error: BaseException) -> None:
        LOG.info("%s failed", self.name, exc_info=error)
        self.error = error
        self.cluster.trace("failed", self.name, type(error).__name__, str(error))
        self._end_life(machine, silent=self.disk.is_dead)
        self._become(State.FAILED)

    def _die(self, *, silent: bool) -> None:
        if self.machine is not None and self.is_up:
            self._end_life(self.machine, silent=silent)
            self._become(State.OFF)

    def _end_life(self, machine: Machine, *, silent: bool) -> None:
        self.cluster.network.machine_died(machine, silent=silent)
        if not self.disk.is_dead:
            self.disk.kill()  # before the coroutines end, so that their cleanup does not change the disk
        machine.kill()
        server, self.server = self.server, None
        if server is not None:
            self.cluster.schedule.agenda.run_for(server.world.environment.owner)
            self.cluster.schedule.agenda.go_on(server.world.environment.owner)

    def _become(self, state: State) -> None:
        self.state = state
        self.cluster.trace("node", self.name, state.value)
