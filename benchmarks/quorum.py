"""Three voters in this process. Measures how soon a new quorum has created a topic, and how long a commit takes.

    python -m benchmarks.quorum [--rounds 5] [--commits 300] [--directory DIR]

The time in the first row runs from the start of three formatted nodes to the answer to CreateTopics. Each node is a
broker and a controller, the voters are static, and the modules are already imported. The commits are ConfigRecords that
the active controller writes one after another. Each commit is measured from the decision on. All three voters sync
their logs to one disk. The table compares a commit with two syncs of the device. Such a sync is an append of 100 bytes
and an fdatasync in the same directory, measured between the commits. `--directory` decides the disk.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import benchmarks.peers  # noqa: F401 - it puts tests/support on the path

from asking import ask
from kafkacore.config import BrokerConfig
from kafkacore.protocol.messages import CreateTopicsRequest, IncrementalAlterConfigsRequest
from kafkacore.runtime.ports import free_ports
from kafkacore.server.node import Node
from kafkacore.tools import main as command_line

CLUSTER_ID = "kafkacoreBenchAAAAAAAA"
NODES = (1, 2, 3)
TOPIC = "t"


class Caller:
    api_version = 1
    forwarded = False


class Quorum:
    def __init__(self, directory: Path) -> None:
        data, control = free_ports(3), free_ports(3)
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in zip(NODES, control, strict=True))
        self.address = f"127.0.0.1:{data[0]}"
        self.nodes = []
        for node, data_port, control_port in zip(NODES, data, control, strict=True):
            settings = {
                "process.roles": "broker,controller",
                "node.id": str(node),
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://127.0.0.1:{data_port},CONTROLLER://127.0.0.1:{control_port}",
                "log.dirs": str(directory / str(node)),
            }
            properties = directory / f"{node}.properties"
            properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            with contextlib.redirect_stdout(None):
                command_line.main(["storage", "format", "-t", CLUSTER_ID, "-c", str(properties)])
            self.nodes.append(Node(BrokerConfig(settings)))

    def start_and_create_topic(self) -> float:
        """Returns the milliseconds until a new cluster has created a topic."""
        began = time.perf_counter()
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(Node.start, self.nodes))
        topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        answer = ask(self.address, CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
        assert answer.topics[0].error_code == 0, answer
        return (time.perf_counter() - began) * 1e3

    def commits(self, count: int, directory: Path) -> tuple[list[float], list[float]]:
        """Returns the milliseconds of `count` commits, and of the same number of syncs of the device between the
        commits."""
        node = next(node for node in self.nodes if node.controller_server.quorum.active)
        commits, syncs = [], []
        with (directory / "synced").open("ab", buffering=0) as file:
            for number in range(count):
                file.write(b"x" * 100)
                began = time.perf_counter()
                os.fdatasync(file.fileno())
                syncs.append((time.perf_counter() - began) * 1e3)
                loop = node.controller_server.plane.loop
                commits.append(loop.submit(commit(node.controller_server.quorum, number)).result(10))
        return commits, syncs

    def stop(self) -> None:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(Node.stop, self.nodes))


async def commit(controller: Any, number: int) -> float:
    made = IncrementalAlterConfigsRequest
    config = made.AlterableConfig(name="retention.ms", config_operation=0, value=str(1000 + number))
    resource = made.AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[config])
    began = time.perf_counter()
    answer = await controller.incremental_alter_configs(Caller(), made(resources=[resource]))
    took = (time.perf_counter() - began) * 1e3
    assert answer.responses[0].error_code == 0, answer
    return took


def show(name: str, values: list[float]) -> None:
    low, middle, high = min(values), statistics.median(values), max(values)
    print(f"  {name:<50} {middle:8.2f} ms ({low:.2f} - {high:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--directory", default=None)
    arguments = parser.parse_args()
    print(f"load {' '.join(f'{each:.2f}' for each in os.getloadavg())}, {len(os.sched_getaffinity(0))} cores")
    starts, commits, syncs = [], [], []
    for number in range(arguments.rounds + 1):
        with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
            quorum = Quorum(Path(scratch))
            took = quorum.start_and_create_topic()
            if number == 0:
                commits, syncs = quorum.commits(arguments.commits, Path(scratch))
            else:  # the first round imports modules
                starts.append(took)
            quorum.stop()
    show("three new nodes: leader elected, topic created", starts)
    show("commit of one record, three voters on one disk", commits)
    show("sync of the device", syncs)
    bound = 2 * statistics.median(syncs) + 1
    print(f"  the goal for a commit, two syncs + 1 ms: {bound:.2f} ms")


if __name__ == "__main__":
    main()
