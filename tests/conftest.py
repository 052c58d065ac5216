"""Fixtures that start real processes; what is not on this machine skips a test, or fails it where CI=true."""

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

# Hypothesis, too, tries the same every time unless `new` is asked for (tests/support/seeds.py); slowness is no failure.
hypothesis.settings.register_profile("kafkacore", derandomize=CHOSEN != "new", deadline=None)
hypothesis.settings.load_profile("kafkacore")


def pytest_addoption(parser):
    parser.addoption(
        "--peer", choices=["kafkacore", *APACHE], default="kafkacore", help="the broker that tests/clients runs against"
    )


def look_no_more_at_what_is_old():
    """Many tests collect garbage, to count what is left of a thing: not through five thousand tests each time."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish():
    look_no_more_at_what_is_old()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    try:
        return (yield)
    finally:
        # The modules that its file imported, the message classes it made. What failed may be held by its traceback, and
        # until its teardown is over a test holds what its fixtures gave it: a node's cycles would stay for ever.
        if not item.session.testsfailed and (nextitem is None or nextitem.path != item.path):
            look_no_more_at_what_is_old()


def pytest_runtest_setup(item):
    if item.get_closest_marker("ours") and item.config.getoption("--peer") != "kafkacore":
        pytest.skip("says something about a kafkacore node alone")


def need_java(name):
    need(shutil.which("java"), "no java: apt install openjdk-17-jdk-headless maven, then make peers")
    need_jars(APACHE[name])


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory):
    """Starts Apache Kafka: `apache_kafka("apache-4.3", {"log.segment.bytes": "1048576"})`; gone with the session."""
    started = []

    def start(name, overrides=None):
        need_java(name)
        broker = ApacheKafka(name, tmp_path_factory.mktemp(name), overrides)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.kill()  # nobody looks at what it leaves, and an orderly end takes it seconds


@pytest.fixture
def start_node(tmp_path):
    """Starts nodes of ours: `start_node("--topic", "a:3", overrides={...})`; whatever is left running is stopped."""
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
    """Starts a broker that one test alone uses and may kill: ours, or what --peer names."""
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
    """The broker under test, one for the session: ours, or what --peer or KAFKACORE_TEST_BOOTSTRAP names."""
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
    """Where the broker keeps its logs, for the tests that read segments."""
    need(broker.log_dir, "where the broker keeps its logs is unknown: set KAFKACORE_TEST_LOG_DIR")
    return broker.log_dir


NAMES = itertools.count(1)


@pytest.fixture
def topic_name(request):
    """A topic name that no other test uses; the topic is not made."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return f"{plain[:80]}.{os.getpid()}.{next(NAMES)}"
