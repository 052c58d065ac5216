"""The Java side of the client suite: one process with the tools of each release."""

import pytest

from brokers import APACHE
from kafka_tools import KafkaTools
from processes import PEERS, need

RUNNERS = {}


@pytest.fixture(scope="session", autouse=True)
def close_runners():
    yield
    for runner in RUNNERS.values():
        runner.close()
    RUNNERS.clear()


@pytest.fixture(params=APACHE)
def tools(request):
    """Apache Kafka's command-line tools, as 4.3 and as 3.9 ship them."""
    name = request.param
    if name not in RUNNERS:
        need((PEERS / f"kafka-{APACHE[name]}" / ".complete").exists(), f"no jars of {name}: make peers")
        RUNNERS[name] = KafkaTools(name)
    return RUNNERS[name]
