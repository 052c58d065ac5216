"""The Java tools of the client tests. For each release, one process runs all tools."""

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
    """Returns Apache Kafka's command-line tools, from both releases, 4.3 and 3.9."""
    name = request.param
    if name not in RUNNERS:
        need_jars(APACHE[name])
        RUNNERS[name] = KafkaTools(name)
    return RUNNERS[name]
