"""A node under attack, and an honest client, which has measured before the attack how long it waits for answers."""

from collections.abc import Iterator

import pytest

from attacks import HonestClient, batch, find_coordinators, metadata, produce, try_topic
from brokers import Node

HONEST_TOPIC = "honest"


@pytest.fixture
def node(start_node) -> Node:
    return start_node("--topic", f"{HONEST_TOPIC}:1", "--topic", "attacked:1", "--topic", "wide:300")


@pytest.fixture
def honest(node: Node) -> Iterator[HonestClient]:
    """Returns a client that sends requests to a processor (produce, and metadata while the answer is cached), to the
    broker's handler loop (coordinator), and to the controller (topic)."""
    questions = {
        "produce": produce(HONEST_TOPIC, [(0, batch())]),
        "metadata": metadata(HONEST_TOPIC),
        "coordinator": find_coordinators([HONEST_TOPIC]),
        "topic": try_topic("new"),
    }
    with HonestClient(node.bootstrap, node.pid, questions) as client:
        yield client
