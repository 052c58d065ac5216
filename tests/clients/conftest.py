"""The Java side of the client suite: one process per release runs its tools."""

import pytest

from brokers import APACHE, need_jars
from kafka_tools import KafkaTools

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
        need_jars(APACHE[name])
        RUNNERS[name] = KafkaTools(name)
    return RUNNERS[name]
