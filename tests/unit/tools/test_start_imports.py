"""What a start does not need is not imported by it: the node answers before, and many nodes never need it."""

import subprocess
import sys

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
    print("\\n".join(sys.modules), flush=True)

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
    "kafkacore.controller.common.placement",
    "kafkacore.controller.quorum.config_rules",
    "kafkacore.controller.quorum.configuration",
    "kafkacore.controller.quorum.elections",
    "kafkacore.controller.quorum.producer_ids",
    "kafkacore.controller.quorum.quotas",
    "kafkacore.controller.quorum.reassignments",
    "kafkacore.controller.quorum.topics",
    "kafkacore.inspection",
    "kafkacore.metadata.snapshot",
    "kafkacore.storage.cleaner",
    "kafkacore.storage.log_upkeep",
    "kafkacore.testing",
    "kafkacore._fast.columns",
    "kafkacore._fast.compact",
    "kafkacore._fast.offset_",
    "kafkacore._fast.sim",
    "cramjam",
    "hypothesis",
    "numpy",
    "orjson",
    "prometheus_client",
)


def test_a_start_imports_no_more_than_it_needs(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "node")], capture_output=True, text=True, check=True, timeout=60
    )
    imported = ran.stdout.split()
    assert "kafkacore._fast.plane" in imported, ran.stderr
    assert [name for name in imported if name.startswith(NOT_NEEDED)] == []
