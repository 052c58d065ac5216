"""A whole node, broker and controller, on a simulated disk whose power fails during one of its operations.

The order of the operations depends on threads. So a seed determines which writes survive a power cut, but not during
which operation the power fails. KAFKACORE_CRASH_POINTS sets the number of power cuts (10; `all` means one at every
operation), and KAFKACORE_SEED sets the seed.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Iterator

import pytest

import forgetful_workload as workload
from dialogue import Dialogue
from forgetful_workload import Workload
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.config import BrokerConfig
from kafkacore.protocol.errors import KafkaError
from kafkacore.runtime.world import World
from kafkacore.server.node import Node, NodeFailed
from kafkacore.storage.errors import LogDirectoryError
from kafkacore.storage.format import FormatOptions, format_directories
from kafkacore.tools import dev
from processes import wait_until
from seeds import SEED

POINTS = os.environ.get("KAFKACORE_CRASH_POINTS", "10")
DIRECTORY = "/node"
CLUSTER_ID = "kafkacorePowerAAAAAAAA"
# The errors that a client receives, or that the start of a node raises, after the power has failed.
DEAD = (OSError, TimeoutError, KafkaError, NodeFailed, LogDirectoryError, AssertionError)


@pytest.fixture(scope="module")
def config() -> BrokerConfig:
    overrides = [*workload.OVERRIDES, "server.max.startup.time.ms=10000", "num.network.threads=1"]
    return dev.configuration(DIRECTORY, 0, overrides)


def formatted(config: BrokerConfig) -> SimulatedDisk:
    disk = SimulatedDisk()
    format_directories(config, FormatOptions(CLUSTER_ID, standalone=True), 0, lambda line: None, disk)
    return disk


@contextlib.contextmanager
def running(config: BrokerConfig, disk: SimulatedDisk) -> Iterator[Dialogue]:
    """Runs a node with this disk, and a client of the node, until the power fails."""
    node = Node(config, world=World(disk.environment(), disk))
    node.start()
    over = threading.Event()
    try:
        assert node.bootstrap is not None
        with Dialogue(node.bootstrap) as asked:

            def hang_up() -> None:
                wait_until(lambda: disk.is_dead or over.is_set(), 60)
                asked.hang_up()

            watching = threading.Thread(target=hang_up)
            watching.start()
            try:
                yield asked
            finally:
                over.set()
                watching.join()
    finally:
        node.stop()


def use(config: BrokerConfig, disk: SimulatedDisk, did: Workload) -> None:
    with running(config, disk) as asked:
        did.create(asked, "synced", flush_messages="1")
        did.create(asked, "lazy")
        did.produce(asked, "synced", 7, promised=True, producer_id=did.producer_ids(asked, 1))
        did.produce(asked, "lazy", 4, promised=False)
        did.create(asked, "short")
        did.delete(asked, "short")
        did.delete_records(asked, "synced", 5)
    if not disk.is_dead:
        did.stopped_in_order()
    with running(config, disk) as asked:
        did.create(asked, "late", flush_messages="1")
        did.produce(asked, "late", 3, promised=True, producer_id=did.producer_ids(asked, 1))


def whole_run(config: BrokerConfig) -> tuple[int, int]:
    """Returns the number of disk operations in a run without a power cut, counted from the first start."""
    disk = formatted(config)
    first = disk.operations
    use(config, disk, Workload(lambda: disk.operations))
    return first, disk.operations


def cut_under(config: BrokerConfig, operation: int) -> None:
    disk = formatted(config)
    did = Workload(lambda: disk.operations)
    disk.cut_power_at(operation)
    try:
        use(config, disk, did)
    except DEAD:
        if not disk.is_dead:
            raise
    disk.cut_power()
    known = did.known_at(1 << 62)
    disk.restart(SEED + operation)
    with running(config, disk) as asked:
        workload.check(asked, known)


@pytest.mark.timeout(120 if POINTS != "all" else 3600)
def test_node_keeps_its_promises_after_a_power_cut_at_any_operation(config: BrokerConfig) -> None:
    first, last = whole_run(config)
    every = range(first, last)
    points = list(every) if POINTS == "all" else random.Random(SEED).sample(every, min(int(POINTS), len(every)))
    failures = []
    for operation in sorted(points):
        try:
            cut_under(config, operation)
        except Exception as error:  # noqa: BLE001 - the test tries every cut and reports all failures
            failures.append(f"operation {operation}: {type(error).__name__}: {error}")
    print(f"\n{len(points)} of {last - first} operations tried, KAFKACORE_SEED={SEED}")
    assert not failures, f"KAFKACORE_SEED={SEED}, {len(failures)} of {len(points)}:\n" + "\n".join(failures[:30])
