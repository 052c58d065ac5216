"""What a start does not need is not imported by it: the node answers before, and many nodes never need it."""

import subprocess
import sys
from pathlib import Path

import pytest

from kafkacore.tools import ahead

PROGRAM = """
import sys
from kafkacore.server import broker
from kafkacore.tools import dev
from kafkacore.server.node import Node

config = dev.configuration(sys.argv[1], 0, [])
dev.prepare(config)
began = broker.BrokerServer.start

async def noted(self):
    await began(self)
    print("\\n".join(f"{name} {getattr(module, '__file__', None) or ''}" for name, module in sys.modules.items()))

broker.BrokerServer.start = noted
node = Node(config)
node.start()
node.stop()
"""
# Asked for by clients, administrators, compacted topics, a later start, or a large cluster.
NOT_NEEDED = (
    "kafkacore.coordinator",
    "kafkacore.server.groups",
    "kafkacore.server.handlers.broker",
    "kafkacore.server.error_responses",
    "kafkacore.config.group",
    "kafkacore.config.client_metrics",
    "kafkacore.config.changes",
    "kafkacore.controller.common",
    "kafkacore.controller.quorum.config_rules",
    "kafkacore.controller.quorum.configuration",
    "kafkacore.controller.quorum.elections",
    "kafkacore.controller.quorum.leaders",
    "kafkacore.controller.quorum.producer_ids",
    "kafkacore.controller.quorum.quotas",
    "kafkacore.controller.quorum.reassignments",
    "kafkacore.controller.quorum.topics",
    "kafkacore.inspection",
    "kafkacore.metadata.snapshot",
    "kafkacore.server.metrics",
    "kafkacore.storage.cleaner",
    "kafkacore.storage.log_upkeep",
    "kafkacore.testing",
    "kafkacore._fast.schema.columns",
    "kafkacore._fast.compact",
    "kafkacore._fast.hot.offset_",
    "kafkacore._fast.world.simulated",
    "argparse",
    "cramjam",
    "hypothesis",
    "numpy",
    "orjson",
    "prometheus_client",
)


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """By the time that a node serves: the files of modules by their names."""
    directory = str(tmp_path_factory.mktemp("started") / "node")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, directory], capture_output=True, text=True, check=True, timeout=60
    )
    found = dict(line.split(" ", 1) for line in ran.stdout.splitlines())
    assert "kafkacore._fast.plane.plane" in found, ran.stderr
    return found


def test_a_start_imports_no_more_than_it_needs(imported):
    assert [name for name in imported if name.startswith(NOT_NEEDED)] == []


def test_the_libraries_that_a_start_imports_are_those_that_are_opened_ahead(imported):
    """Ours: which of Python's there are is another question for each of its releases."""
    opened = {Path(path).name for path in ahead.libraries() if "/_fast/" in path}
    needed = {Path(file).name for file in imported.values() if file.endswith(".so") and "/_fast/" in file}
    needed -= {name for name in needed if name.startswith("preload.")}  # who opens them
    assert sorted(opened - needed) == [], "opened for nothing"
    assert sorted(needed - opened) == [], "not opened ahead"


SETTLED = """
import os, signal, sys
from kafkacore.runtime import collecting
from kafkacore.server.node import Node
from kafkacore.tools import dev, running

def look(self):
    print("\\n".join(sys.modules))
    collecting.FullCollections.look = lambda self: None
    os.kill(os.getpid(), signal.SIGTERM)

collecting.LOOK_EVERY_MS = running.SETTLED_MS = 1
collecting.FullCollections.look = look
config = dev.configuration(sys.argv[1], 0, [])
dev.prepare(config)
running.run(Node(config), lambda node: None)
"""


def test_a_node_that_has_started_imports_what_its_first_topic_needs(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", SETTLED, tmp_path / "node"], capture_output=True, text=True, check=True, timeout=60
    )
    assert {"kafkacore.controller.quorum.topics", "kafkacore._fast.schema.columns"} <= set(ran.stdout.split()), (
        ran.stderr
    )
