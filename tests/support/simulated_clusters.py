"""Steps that several tests of simulated clusters share: an election, a change, and comparisons of images and of whole
runs."""

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
    """Changes a value in the cluster's default configuration. The controller can decide this without any broker."""
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="log.retention.ms", config_operation=SET, value=text)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name="", configs=[config]
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


def elected(cluster: SimulatedCluster) -> SimulatedNode:
    """Waits until every running node has started and a controller is active. Returns that controller."""
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
    """Sends the change to the active controller, and repeats it until a controller has committed it, as a client
    does."""
    for _ in range(20):
        try:
            answer = cluster.ask(elected(cluster).node_id, alter_cluster(text), 5)
        except (OSError, TimeoutError):
            continue
        if answer.responses[0].error_code == ErrorCode.NONE:
            return
        assert answer.responses[0].error_code == ErrorCode.NOT_CONTROLLER
        cluster.run_for(0.1)
    raise AssertionError(f"no controller has committed {text}")


def is_in_every_image(cluster: SimulatedCluster, text: str) -> bool:
    images = [node.controller_image for node in cluster.controllers if node.is_up]
    return all(
        image is not None and image.config(BROKER_RESOURCE, "").get("log.retention.ms") == text for image in images
    )


def told_with_other_orders_of_sets(program: str, directory: str, limit_s: float) -> list[str]:
    """Runs a program in two interpreters with different hash seeds, so that their sets have different orders. Returns
    the output of each. `directory` contains the modules that the program imports in addition to ours."""
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
