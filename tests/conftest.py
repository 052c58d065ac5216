"""Fixtures that start real processes. A missing program skips a test, or fails it if CI=true."""

import gc
import itertools
import os
import shutil
from pathlib import Path

import hypothesis
import pytest

from brokers import APACHE, ApacheKafka, ExternalBroker, Node, need_jars
from processes import ROOT, need
from seeds import CHOSEN

# Hypothesis also tries the same cases each time unless the seed is `new` (tests/support/seeds.py). A slow case is no
# failure.
hypothesis.settings.register_profile("kafkacore", derandomize=CHOSEN != "new", deadline=None)
hypothesis.settings.load_profile("kafkacore")


def pytest_addoption(parser):
    parser.addoption(
        "--peer", choices=["kafkacore", *APACHE], default="kafkacore", help="the broker that tests/clients runs against"
    )


def freeze_old_objects():
    """Many tests collect garbage to count live objects, and should not look through those of all former tests."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish():
    freeze_old_objects()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    try:
        return (yield)
    finally:
        # This freezes the modules that the file imported and the message classes it made. The traceback of a failed
        # test holds objects, and so does a test until its teardown is over: without that check, a node's cycles would
        # stay for ever.
        if not item.session.testsfailed and (nextitem is None or nextitem.path != item.path):
            freeze_old_objects()


def pytest_runtest_setup(item):
    if item.get_closest_marker("ours") and item.config.getoption("--peer") != "kafkacore":
        pytest.skip("says something about a kafkacore node alone")


def need_java(name):
    need(shutil.which("java"), "no java: apt install openjdk-17-jdk-headless maven, then make peers")
    need_jars(APACHE[name])


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory):
    """Starts Apache Kafka, which runs until the session ends: `apache_kafka("apache-4.3", {"log.roll.ms": "1000"})`."""
    started = []

    def start(name, overrides=None):
        need_java(name)
        broker = ApacheKafka(name, tmp_path_factory.mktemp(name), overrides)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.kill()  # an orderly stop takes seconds, and no test needs its files


@pytest.fixture
def start_node(tmp_path):
    """Starts nodes of ours: `start_node("--topic", "a:3", overrides={...})`; stops those that still run at the end."""
    started, number = [], itertools.count(1)

    def start(*arguments, overrides=None, directory=None, environment=None):
        node = Node(
            directory or tmp_path / f"node-{next(number)}", *arguments, overrides=overrides, environment=environment
        )
        started.append(node)
        return node

    yield start
    for node in started:
        node.stop()


@pytest.fixture
def fresh_broker(request, tmp_path):
    """Starts a broker for one test, which may kill it: ours, or the one that --peer names."""
    started = []

    def start(overrides=None):
        peer = request.config.getoption("--peer")
        if peer in APACHE:
            need_java(peer)
            one = ApacheKafka(peer, tmp_path / peer, overrides)
        else:
            one = Node(tmp_path / "node", overrides=overrides)
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop()


def external():
    bootstrap = os.environ["KAFKACORE_TEST_BOOTSTRAP"]
    return ExternalBroker(
        bootstrap, os.environ.get("KAFKACORE_TEST_CONTROLLER"), os.environ.get("KAFKACORE_TEST_LOG_DIR")
    )


@pytest.fixture(scope="session")
def broker(request, tmp_path_factory):
    """The broker under test, one per session: ours, or the one of --peer or KAFKACORE_TEST_BOOTSTRAP."""
    if "KAFKACORE_TEST_BOOTSTRAP" in os.environ:
        yield external()
        return
    peer = request.config.getoption("--peer")
    if peer in APACHE:
        yield request.getfixturevalue("apache_kafka")(peer)
        return
    need((ROOT / ".venv" / "bin" / "kafkacore").exists(), "no .venv/bin/kafkacore: make build")
    node = Node(Path(tmp_path_factory.mktemp("kafkacore")) / "node")
    yield node
    assert node.stop() == 0, node.child.tail()


@pytest.fixture
def log_dir(broker):
    """The broker's log directory, for tests that read segments."""
    need(broker.log_dir, "where the broker keeps its logs is unknown: set KAFKACORE_TEST_LOG_DIR")
    return broker.log_dir


NAMES = itertools.count(1)


@pytest.fixture
def topic_name(request):
    """A topic name that no other test uses; the fixture does not create the topic."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return f"{plain[:80]}.{os.getpid()}.{next(NAMES)}"
