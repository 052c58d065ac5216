"""Steps that several tests of simulated clusters take: an election, a change, comparisons of images and of runs."""

from __future__ import annotations

import os
import subprocess
import sys

from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import IncrementalAlterConfigsRequest
from kafkacore.simulation.cluster import SimulatedCluster
from kafkacore.simulation.node import SimulatedNode, State

BROKER_RESOURCE, SET = 4, 0


def alter_cluster(text: str) -> IncrementalAlterConfigsRequest:
    """A decision that needs no broker: a value of the cluster's default configuration."""
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="log.retention.ms", config_operation=SET, value=text)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name="", configs=[config]
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


def elected(cluster: SimulatedCluster) -> SimulatedNode:
    """The active controller, when every node that is up has started."""
    cluster.run_until(
        lambda: (
            cluster.active_controller is not None and all(node.state is State.RUNNING for node in cluster if node.is_up)
        ),
        30,
        "an election",
    )
    active = cluster.active_controller
    assert active is not None
    return active


def commit(cluster: SimulatedCluster, text: str) -> None:
    """Asks the active controller, as a client does, until one has committed."""
    for _ in range(20):
        try:
            answer = cluster.ask(elected(cluster).node_id, alter_cluster(text), 5)
        except (OSError, TimeoutError):
            continue
        if answer.responses[0].error_code == ErrorCode.NONE:
            return
        assert answer.responses[0].error_code == ErrorCode.NOT_CONTROLLER
        cluster.run_for(0.1)
    raise AssertionError(f"nobody has committed {text}")


def is_in_every_image(cluster: SimulatedCluster, text: str) -> bool:
    images = [node.controller_image for node in cluster.controllers if node.is_up]
    return all(
        image is not None and image.config(BROKER_RESOURCE, "").get("log.retention.ms") == text for image in images
    )


def told_with_other_orders_of_sets(program: str, directory: str, limit_s: float) -> list[str]:
    """Runs a program in two interpreters whose sets have different orders, and returns what each printed. `directory`
    holds the modules that it imports beside ours."""
    paths = os.pathsep.join(each for each in sys.path if each)
    here = os.pathsep.join((directory, paths))
    return [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": order, "PYTHONPATH": here},
            capture_output=True, text=True, check=True, timeout=limit_s,
        ).stdout
        for order in ("1", "2")
    ]  # fmt: skip
