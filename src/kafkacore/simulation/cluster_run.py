"""Runs a cluster of whole nodes from a seed: clients and faults, then a time without faults, then checks of the
result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Any, Final, Self

from kafkacore._fast.base.uuid import Uuid
from kafkacore.simulation.actor import Actor
from kafkacore.simulation.checkers.observations import (
    BrokerAlive,
    ControllersAlive,
    HandlerFailed,
    Healed,
    MetadataSurvived,
    NodeFailed,
    Progressed,
    TimePassed,
)
from kafkacore.simulation.checkers.violation import Checker, Violation
from kafkacore.simulation.clients import MIN_ISR, RETENTION, TOPIC, UNCLEAN, SeededClient
from kafkacore.simulation.cluster import Event, SimulatedCluster, SimulatedNodes, running
from kafkacore.simulation.cluster_faults import ClusterFaults
from kafkacore.simulation.faults import Schedule
from kafkacore.simulation.judge import Judge
from kafkacore.simulation.node import State
from kafkacore.simulation.nodes_watch import NodesWatcher
from kafkacore.simulation.operators import SeededOperator
from kafkacore.simulation.watch import Watcher

SERVER_LOG: Final = logging.getLogger("kafkacore.server")
CLIENTS: Final = 3
NS_OF_A_MS: Final = 1_000_000
PEACE_STEP_MS: Final = 250
START_MS: Final = 20_000
READING_MS: Final = 80_000
SETTLING_MS: Final = 3_000  # an idle follower fetches ten times within this time
EXPECTED: Final = ("leader", "commit", "every node", "every image", "every replica")
OF_BROKERS: Final = ("record", "group commit")
REPLICAS: Final = 3
OFFSETS_PARTITIONS: Final = 2
SYNCED: Final = {"log.flush.interval.messages": "1"}
# Small values, so that a short run reaches every part of the code.
CONFIGS: Final = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offsets.commit.required.acks": "-1",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "metadata.max.retention.bytes": "12000",
    "internal.metadata.log.segment.bytes": "16000",
    "auto.create.topics.enable": "false",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "leader.imbalance.per.broker.percentage": "0",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    # A broker that finds no active controller within this time shuts down, and the run would count that as a failure.
    "initial.broker.registration.timeout.ms": "3600000",
}


class HandlerErrors(logging.Handler):
    """Collects the errors that request handlers did not expect. The dispatchers of all nodes report these errors. An
    error of a full or dead disk does not count."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[HandlerFailed] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if record.module == "dispatch" and error is not None and not isinstance(error, OSError):
            self.found.append(HandlerFailed(record.getMessage(), f"{type(error).__name__}: {error}"))

    def __enter__(self) -> Self:
        SERVER_LOG.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        SERVER_LOG.removeHandler(self)


class WholeNodesRun:
    """A run of whole nodes. `steps` is the number of faults. A subclass makes the cluster, its watcher and its faults,
    and then calls `_begin`."""

    cluster: SimulatedNodes
    _watcher: NodesWatcher
    _faults: ClusterFaults

    def __init__(
        self, seed: int, steps: int, brokers: int, expected: Sequence[str], unpromised: Collection[type[Checker]] = ()
    ) -> None:
        """`expected` lists what must happen after the faults. The judge leaves out the checkers in `unpromised`."""
        self.judge = Judge(expected, unpromised=unpromised)
        self.steps = steps
        self._seed, self._brokers = seed, brokers
        self._random = Random(f"{seed} run")
        self._failed: list[NodeFailed] = []
        self._errors = HandlerErrors()

    def _choose(self, configs: Mapping[str, str]) -> dict[str, str]:
        """Returns `configs` with the settings that the seed chooses."""
        # With fewer than REPLICAS brokers, each partition has one replica, so its broker must sync each record.
        self._replicas = REPLICAS if self._brokers >= REPLICAS else 1
        # If brokers do not sync each record, a power cut can remove acknowledged records. So brokers never lose their
        # power in such a run.
        self._is_synced = self._replicas < 2 or self._random.random() < 0.6
        chosen = {**configs, "offsets.topic.replication.factor": str(self._replicas)}
        if self._is_synced:
            chosen |= SYNCED
        # In half of the runs, leaderships return to the preferred replicas soon after each failure.
        chosen["leader.imbalance.check.interval.seconds"] = self._random.choice(("1", "300"))
        # With only the default replica.lag.time.max.ms of 30 s, no replica would leave the ISR because of its lag: its
        # broker's session would always expire first.
        chosen["replica.lag.time.max.ms"] = self._random.choice(("1500", "4000", "30000"))
        return chosen

    def _begin(self, directories: Mapping[int, Uuid]) -> None:
        """Makes the clients, the operator and the schedule of faults. The operator gets `directories`."""
        seed, replicas, is_synced = self._seed, self._replicas, self._is_synced
        self.cluster.observers.append(self._look_for_failure)
        self._schedule = Schedule(self._random, self.judge, self._faults.kinds(), lambda: self._watcher.now_ms)
        lossy: dict[str, None] = {}
        with_brokers = self._brokers > 0
        self._clients = [
            SeededClient(
                self.cluster, self.judge, f"client-{number}", Random(f"{seed} client {number}"), replicas,
                {"flush.messages": "1"} if is_synced else {}, lossy,
            )
            for number in range(CLIENTS if with_brokers else 0)
        ]  # fmt: skip
        self._readers = [client.reader for client in self._clients]
        random = Random(f"{seed} operator")
        self._operators = [
            SeededOperator(self.cluster, self.judge, random, replicas, lossy, directories=directories)
            for _ in range(1 if with_brokers else 0)
        ]
        self._actors: list[Actor] = [*self._clients, *self._readers, *self._operators]

    @property
    def virtual_ms(self) -> int:
        return self.cluster.schedule.now_ns // NS_OF_A_MS

    @property
    def events(self) -> int:
        return self.cluster.schedule.turns

    def run(self) -> None:
        """Runs the cluster. Raises Violation, or any error of the code under test."""
        with self.cluster, self._errors:
            self.cluster.start()
            self._wait_for_start()
            for actor in self._actors:
                actor.start()
            for _ in range(self.steps):
                self._schedule.step()
                self._run_for(self._random.choice((20, 200, 1_000, 3_000)))
                self._see_who_lives()
            # Faults end one by one, so that the last one affects a cluster without other faults. The longest time
            # between the ends of two faults exceeds `FENCED_WITHIN_MS`. More would cost much CPU time, and a cluster
            # with few faults seldom breaks an invariant.
            while self._schedule.heal_one():
                for _ in range(self._random.choice((0, 2, 15))):
                    self._run_for(1_000)
                    self._see_who_lives()
            self._have_peace()

    def _run_for(self, duration_ms: int) -> None:
        schedule, look = self.cluster.schedule, self._watcher.look
        until_ns = schedule.now_ns + duration_ms * NS_OF_A_MS
        while schedule.now_ns < until_ns and schedule.step(until_ns):
            look()
        self.judge.check()
        for actor in self._actors:
            actor.check()
        while self._failed:
            self.judge.see(self._failed.pop(0))
        while self._errors.found:
            self.judge.see(self._errors.found.pop(0))

    def _look_for_failure(self, event: Event) -> None:
        if event.kind in ("fault", "failed"):
            name, *error = event.details
            node = next(each for each in self.cluster if each.name == name)
            self._failed.append(NodeFailed(node.node_id, ": ".join(error), self._faults.explains(node)))

    def _wait_for_start(self) -> None:
        for _ in range(START_MS // PEACE_STEP_MS):
            if running(self.cluster) and self.cluster.active_controller is not None:
                return
            self._run_for(PEACE_STEP_MS)
        self.judge.see(Healed(0))
        self.judge.see(TimePassed(1 << 40))

    def _see_who_lives(self) -> None:
        """Reports to the judge which nodes run and can reach the others, according to the active faults."""

    def _see_metadata(self) -> None:
        """Reports to the judge when all running nodes have the same metadata."""

    def _have_peace(self) -> None:
        cluster, judge = self.cluster, self.judge
        for node in cluster:
            self._faults.start(node)
        judge.see(Healed(self._watcher.now_ms))
        for _ in range(1 << 20):
            self._see_who_lives()
            if cluster.active_controller is not None:
                judge.see(Progressed("leader", self._watcher.now_ms))
            if not self._clients:
                judge.see(Progressed("commit", self._watcher.now_ms))
            if running(cluster):
                judge.see(Progressed("every node", self._watcher.now_ms))
                self._see_metadata()
                if self._watcher.is_in_sync:
                    judge.see(Progressed("every replica", self._watcher.now_ms))
            judge.see(TimePassed(self._watcher.now_ms))
            if not judge.progress.waits_for:
                break
            for node in cluster:
                if node.state in (State.FAILED, State.OFF):
                    node.start()
            self._run_for(PEACE_STEP_MS)
        self._see_what_is_left()

    def _see_what_is_left(self) -> None:
        for actor in self._actors:
            actor.stop()
        self._let_all("end their work", [actor.task for actor in self._actors if actor.task is not None])
        self._let_all("write to every partition", [client.begin_writing() for client in self._clients])
        self._run_for(SETTLING_MS)
        self._watcher.settle()
        reads = [reader.begin_reading() for reader in self._readers]
        self._let_all("read everything back", reads + [client.begin_reading() for client in self._clients])
        owners: list[SeededClient | SeededOperator] = [*self._clients, *self._operators]
        for owner in owners:
            for resource in owner.resources:
                if self._exists(resource):
                    self.judge.see(MetadataSurvived(resource, self._value_of(resource)))

    def _let_all(self, what: str, tasks: list[asyncio.Task[None]]) -> None:
        for _ in range(READING_MS // PEACE_STEP_MS):
            if all(task.done() for task in tasks):
                break
            self._run_for(PEACE_STEP_MS)
        for task in tasks:
            if not task.done():
                raise Violation("Progress", f"clients could not {what} within {READING_MS} ms")
            task.result()

    def _exists(self, resource: str) -> bool:
        """Returns whether the topic of a resource that the operator changed still exists. The client that owns the
        topic may have deleted it."""
        newest: Any = self._watcher.newest
        kind, _, name = resource.partition(" ")
        if kind in (MIN_ISR, UNCLEAN):
            return name in newest["topics"]
        return kind != "replicas" or _log_key(name) in newest["partitions"]

    def _value_of(self, resource: str) -> object:
        """Returns the value that a resource of a client or of the operator has in the newest image."""
        newest: Any = self._watcher.newest
        kind, _, name = resource.partition(" ")
        if kind == "topic":
            return True if name in newest["topics"] else None
        if kind == "partitions":
            return sum(1 for topic, _ in newest["partitions"] if topic == name)
        if kind == "replicas":
            return tuple(sorted(newest["partitions"][_log_key(name)][2]))
        key = RETENTION if kind == "config" else kind
        return newest["configs"].get(str((TOPIC, name)), {}).get(key)


class ClusterRun(WholeNodesRun):
    """A run of a cluster in KRaft mode. `steps` is the number of faults. The other arguments are the same as for
    SimulatedCluster.
    """

    _watcher: Watcher

    def __init__(self, seed: int, steps: int, controllers: int, brokers: int, combined: int = 0) -> None:
        with_brokers = brokers + combined
        super().__init__(seed, steps, with_brokers, EXPECTED + (OF_BROKERS if with_brokers else ()))
        static = self._random.random() < 0.5
        self.cluster = SimulatedCluster(
            seed, controllers=controllers, brokers=brokers, combined=combined, static=static,
            configs=self._choose(CONFIGS),
        )  # fmt: skip
        self._watcher = Watcher(self.cluster, self.judge, OFFSETS_PARTITIONS)
        self._faults = ClusterFaults(self.cluster, brokers_lose_power=self._is_synced)
        self._voters = self._watcher.voters
        self._active_epoch = -1  # the epoch of the last active controller
        self._begin({} if static else self.cluster.directories)

    def _see_who_lives(self) -> None:
        """Reports to the judge which nodes run and can reach the others, according to the active faults."""
        cluster, now_ms = self.cluster, self._watcher.now_ms
        voters, before = self._watcher.voters, self._voters
        self._voters = voters
        up = [node.node_id for node in cluster.controllers if node.state is State.RUNNING and node.node_id in voters]
        up = [each for each in up if not self._faults.is_slow(each)]
        majority = len(voters) // 2 + 1
        # The controllers that have links in both directions to a majority of the controllers.
        connected = [one for one in up if sum(not self._faults.is_cut(one, other) for other in up) >= majority]
        # A new active controller gives every broker a full session. Without an active controller, no broker can be
        # fenced.
        active, was_active = cluster.active_controller, self._active_epoch
        self._active_epoch = -1 if active is None or active.raft is None else active.raft.epoch
        is_steady = voters == before and was_active == self._active_epoch >= 0
        healthy = is_steady and len(connected) >= majority and cluster.network.quality.loss == 0
        self.judge.see(ControllersAlive(healthy and cluster.network.quality.most_s < 0.1, now_ms))
        controllers = [node.node_id for node in cluster.controllers]
        for broker in cluster.brokers:
            alive = broker.is_up and broker.state is not State.PAUSED
            self.judge.see(
                BrokerAlive(broker.node_id, alive and self._faults.reaches(broker.node_id, controllers), now_ms)
            )
        self._watcher.see_fencing()

    def _see_metadata(self) -> None:
        offsets = {image.offset for image in self._images()}
        if len(offsets) == 1:
            self.judge.see(Progressed("every image", self._watcher.now_ms))

    def _images(self) -> list[Any]:
        found = [image for node in self.cluster for image in (node.controller_image, node.broker_image)]
        return [image for image in found if image is not None]


def _log_key(log: str) -> tuple[str, int]:
    topic, _, index = log.rpartition("-")
    return topic, int(index)
