"""Starts Apache Kafka's tools once for all tests that compare our tools with them."""

from contextlib import ExitStack, closing

import pytest

from brokers import APACHE
from kafka_tools import KafkaTools
from processes import PEERS, need


@pytest.fixture(scope="session")
def tools_of_either():
    """Returns Apache Kafka's tools by release. The tools of each release run in one process."""
    for release in APACHE.values():
        need((PEERS / f"kafka-{release}" / ".complete").exists(), "make peers: Apache Kafka's jars, Java 17 and Maven")
    with ExitStack() as stack:
        yield {name: stack.enter_context(closing(KafkaTools(name))) for name in APACHE}


@pytest.fixture(scope="session")
def tools(tools_of_either):
    """Returns the tools of Apache Kafka 4.3."""
    return tools_of_either["apache-4.3"]
