"""Apache Kafka 4.3 takes over a directory from kafkacore, and kafkacore then takes it back. Each shows the
configurations that were made with the other.
"""

import re

import pytest

from brokers import InTurns

TOPIC = "configured"
# Entities and the settings that the tests give them.
CHANGES = [
    (["--entity-type", "topics", "--entity-name", TOPIC], "retention.ms=77000,cleanup.policy=[compact,delete]"),
    (["--entity-type", "brokers", "--entity-name", "1"], "message.max.bytes=500000,num.io.threads=12"),
    (["--entity-type", "brokers", "--entity-default"], "log.segment.bytes=2000000,max.connections.per.ip=77"),
    (["--entity-type", "client-metrics", "--entity-name", "m"], "interval.ms=1000"),
    (["--entity-type", "users", "--entity-name", "alice"], "producer_byte_rate=1024,consumer_byte_rate=2048"),
    (["--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", "app"],
     "request_percentage=12.5"),
    (["--entity-type", "ips", "--entity-name", "10.1.2.3"], "connection_creation_rate=7"),
    (["--entity-type", "users", "--entity-name", "carol"], "SCRAM-SHA-512=[iterations=8192,password=secret]"),
]  # fmt: skip
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def node(tmp_path, tools):
    made = InTurns("apache-4.3", tmp_path)
    yield made
    if made.child is not None:
        made.stop()


def told(tools, node):
    """Returns all settings of each entity and their sources, as a set."""
    shown = {}
    for entity, _ in CHANGES:
        out = tools.run("kafka-configs", "--bootstrap-server", node.bootstrap, "--describe", *entity).out
        found = re.findall(r"[\w.:-]+=[^\s,{}]+(?:,delete)?", out)
        shown[tuple(entity)] = sorted(found)
    return shown


def configure(tools, node, *changes):
    for entity, change in changes:
        tools.run(
            "kafka-configs", "--bootstrap-server", node.bootstrap, "--alter", *entity, "--add-config", change
        )  # fmt: skip


def test_configurations_pass_to_apache_kafka_and_back(node, tools):
    node.give_to_us()
    tools.run("kafka-topics", "--bootstrap-server", node.bootstrap, "--create", "--topic", TOPIC)
    configure(tools, node, *CHANGES)
    ours = told(tools, node)
    assert all(ours.values()), ours
    node.stop()

    node.give_to_apache()
    assert told(tools, node) == ours
    entity, _ = CHANGES[0]
    changes = [(CHANGES[0][0], "retention.ms=88000"), (CHANGES[4][0], "producer_byte_rate=4096")]
    changes += [(CHANGES[1][0], "num.io.threads=16"), (CHANGES[2][0], "log.segment.bytes=3000000")]
    configure(tools, node, *changes)
    delete = ["--alter", *entity, "--delete-config", "cleanup.policy"]
    tools.run("kafka-configs", "--bootstrap-server", node.bootstrap, *delete)
    theirs = told(tools, node)
    assert theirs != ours
    node.stop()

    node.give_to_us()
    assert told(tools, node) == theirs
