"""A local Spark session, and the brokers that it reads from: our node, and Apache Kafka."""

import pytest

from spark_session import connector_jars, need_spark, start
from topic_filling import Topics

START_TIMEOUT_S = 300  # the first test of a process starts Spark and the brokers


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "spark" and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(START_TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """Returns the session that all tests of the process share."""
    need_spark()
    session = start(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connector(spark):
    """Makes sure that Spark's own format `kafka` is available for comparisons."""
    from processes import need

    need(connector_jars(), "Spark's own Kafka connector is missing: ci/spark.sh")
    return "kafka"


@pytest.fixture(scope="session")
def our_node(tmp_path_factory):
    from brokers import Node

    node = Node(tmp_path_factory.mktemp("spark-node") / "node", overrides={"log.cleaner.backoff.ms": "50"})
    yield node
    assert node.stop() == 0, node.child.tail()


@pytest.fixture(scope="session", params=["kafkacore", "apache-4.3"])
def kafka(request):
    """Returns the bootstrap servers of our node, and then the bootstrap servers of Apache Kafka."""
    if request.param == "kafkacore":
        return request.getfixturevalue("our_node").bootstrap
    return request.getfixturevalue("apache").bootstrap


@pytest.fixture(scope="session")
def apache(apache_kafka):
    return apache_kafka("apache-4.3", {"log.cleaner.backoff.ms": "50"})


@pytest.fixture
def topics(kafka, topic_name):
    """Returns an object that makes and fills topics on the broker under test."""
    return Topics(kafka, topic_name)


@pytest.fixture
def read(spark, kafka):
    """Returns a function that reads a topic in one batch: `read("topic", startingOffsets="earliest")`."""

    def run(topic=None, *, format="kafkacore", **options):  # noqa: A002
        reader = spark.read.format(format).option("kafka.bootstrap.servers", kafka)
        if topic is not None:
            reader = reader.option("subscribe", topic)
        return reader.options(**options).load()

    return run
