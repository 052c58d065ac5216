"""Fixtures that start real processes. If a program is missing, the tests that need it are skipped. With CI=true they
fail instead."""

import gc
import itertools
import os
import shutil
from pathlib import Path

import hypothesis
import pytest

from brokers import APACHE, ApacheKafka, ExternalBroker, Node, need_jars
from processes import PATIENCE, ROOT, need
from seeds import CHOSEN

# Hypothesis tries the same cases in each run, unless the seed is `new` (tests/support/seeds.py). No test fails only
# because one of its cases is slow.
hypothesis.settings.register_profile("kafkacore", derandomize=CHOSEN != "new", deadline=None)
hypothesis.settings.load_profile("kafkacore")


def pytest_addoption(parser):
    parser.addoption(
        "--peer", choices=["kafkacore", *APACHE], default="kafkacore", help="the broker that tests/clients runs against"
    )


def pytest_collection_modifyitems(items):
    for item in items:
        limit = item.get_closest_marker("timeout")
        if limit is not None and PATIENCE != 1:
            item.add_marker(pytest.mark.timeout(limit.args[0] * PATIENCE), append=False)


def freeze_old_objects():
    """Excludes all existing objects from garbage collection. Many tests run the collector to count live objects. It
    should not search the objects of all earlier tests each time."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish():
    freeze_old_objects()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    try:
        return (yield)
    finally:
        # Here the freeze covers the modules that a test file imported and the message classes that it created. It must
        # not come after a failed test, because the traceback still holds objects. It must not come between the tests of
        # one file either, because a test holds objects until its teardown has finished. In both cases, the reference
        # cycles of a node would never be freed.
        if not item.session.testsfailed and (nextitem is None or nextitem.path != item.path):
            freeze_old_objects()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """`pytest.importorskip` skips a whole test file. With CI=true, makes the file fail instead, as `need` does for a
    single test."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true":
        report.outcome, report.longrepr = "failed", report.longrepr[2]
    return report


def pytest_runtest_setup(item):
    if item.get_closest_marker("ours") and item.config.getoption("--peer") != "kafkacore":
        pytest.skip("tests a property that only a kafkacore node has")


def need_java(name):
    need(shutil.which("java"), "no java: apt install openjdk-17-jdk-headless maven, then make peers")
    need_jars(APACHE[name])


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory):
    """Starts Apache Kafka, which runs until the test session ends: `apache_kafka("apache-4.3", {"log.roll.ms":
    "1000"})`."""
    started = []

    def start(name, overrides=None):
        need_java(name)
        broker = ApacheKafka(name, tmp_path_factory.mktemp(name), overrides)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.kill()  # an orderly stop takes seconds, and no test needs the broker's files


@pytest.fixture
def start_node(tmp_path):
    """Starts nodes of ours: `start_node("--topic", "a:3", overrides={...})`. At the end of the test, stops the nodes
    that still run."""
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
    """Starts a broker for one test, which may kill the broker. The broker is our node, or the kind of broker that
    --peer names."""
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
    """Returns the broker under test, one per session: our node, or the broker that --peer or KAFKACORE_TEST_BOOTSTRAP
    names."""
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
    """Returns the broker's log directory, for tests that read segment files."""
    need(broker.log_dir, "the broker's log directory is unknown: set KAFKACORE_TEST_LOG_DIR")
    return broker.log_dir


NAMES = itertools.count(1)


@pytest.fixture
def topic_name(request):
    """Returns a topic name that no other test uses. Does not create the topic."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return f"{plain[:80]}.{os.getpid()}.{next(NAMES)}"
