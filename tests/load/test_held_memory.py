"""Fetches that wait for records occupy a limited amount of memory."""

import pytest

from attacks import HonestClient, Line, attack, batch, fetch, metadata, padded, produce
from brokers import Node
from kafkacore.protocol.errors import ErrorCode
from processes import rss_bytes

WAIT_MS = 30_000
PADDING_BYTES = 1 << 20
BUDGET_BYTES = 16 << 20
REQUEST_BYTES = 10 << 20
CONNECTIONS = 60
LARGE_FETCHES = 20
LARGE_ENTRIES = 50_000
OLD_VERSION = 4  # its requests use the fewest bytes per partition
# A node needs memory in addition to its budget: for connections, for other objects, and for free pages that malloc
# keeps.
BESIDE_BUDGET_BYTES = 48 << 20


@pytest.fixture
def small_node(start_node) -> Node:
    """Starts a node whose requests may occupy 16 MiB in total."""
    overrides = {"queued.max.request.bytes": BUDGET_BYTES, "socket.request.max.bytes": REQUEST_BYTES}
    return start_node("--topic", "honest:1", "--topic", "attacked:1", overrides=overrides)


def test_broker_serves_others_when_60_waiting_fetches_are_padded(small_node: Node) -> None:
    """Together these Fetches could fill the budget almost four times. They wait longer than the honest client would."""
    waiting = padded(fetch({"attacked": [0]}, WAIT_MS), PADDING_BYTES)
    questions = {"produce": produce("honest", [(0, batch())]), "metadata": metadata("honest")}
    with HonestClient(small_node.bootstrap, small_node.pid, questions) as honest:
        lines = [Line(small_node.bootstrap) for _ in range(CONNECTIONS)]
        for line in lines:
            line.send(waiting)
        honest.check()
        attack(small_node.bootstrap, produce("attacked", [(0, batch(b"released"))]))
        answers = [fetch({"attacked": [0]}, WAIT_MS).decode(line.receive()) for line in lines]
        for line in lines:
            line.close()
    parts = [answer.responses[0].partitions[0] for answer in answers]
    assert [each.error_code for each in parts] == [ErrorCode.NONE] * CONNECTIONS
    assert all(b"released" in bytes(each.records) for each in parts)


def test_memory_stays_in_the_budget_when_waiting_fetches_name_very_many_partitions(small_node: Node) -> None:
    question = fetch({"attacked": [0] * LARGE_ENTRIES}, WAIT_MS)._replace(version=OLD_VERSION)
    frame = question.frame()
    attack(small_node.bootstrap, fetch({"attacked": [0]}, 0))
    before = rss_bytes(small_node.pid)
    with HonestClient(small_node.bootstrap, small_node.pid, {"produce": produce("honest", [(0, batch())])}) as honest:
        lines = [Line(small_node.bootstrap) for _ in range(LARGE_FETCHES)]
        for line in lines:
            line.send(frame)
        honest.go_on(300)
        grown = rss_bytes(small_node.pid) - before
        honest.check()
        for line in lines:
            line.close()
    assert grown < BUDGET_BYTES + BESIDE_BUDGET_BYTES
