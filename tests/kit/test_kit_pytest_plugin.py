"""The pytest plugin, tested in separate runs of pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(90)

TOGETHER = """
import pytest
from confluent_kafka import Producer

SEEN = set()

@pytest.mark.parametrize("number", range(2))
def test_session(kafka, kafka_topic, number):
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(kafka_topic, b"x")
    assert producer.flush(10) == 0
    assert kafka.log(kafka_topic).values() == [b"x"]
    SEEN.add((kafka.bootstrap, kafka_topic))

def test_one_broker_two_topics():
    assert len({bootstrap for bootstrap, _ in SEEN}) == 1
    assert len(SEEN) == 2

@pytest.mark.kafka(configs={"message.max.bytes": 500}, topics={"mine": 2}, time="frozen", partitions=3)
def test_own(kafka_broker, kafka_topic):
    assert kafka_broker.topics == {"mine": 2, kafka_topic: 3}
    assert kafka_broker.clock.frozen
    with pytest.raises(Exception, match="larger"):
        kafka_broker.produce("mine", "x" * 1000)
"""
FAULTS = """
def test_first(kafka, kafka_topic):
    kafka.refuse("Produce", error="NOT_ENOUGH_REPLICAS")
    kafka.delay("Metadata", seconds=60)
    assert len(kafka.faults()) == 2

def test_second(kafka, kafka_topic):
    assert kafka.faults() == []
    assert len(kafka.requests) == 0
    assert kafka.produce(kafka_topic, "x") == 0
"""
SHOWN = """
import logging, socket, threading

LOG = logging.getLogger("kafkacore.network")

class Waiting(logging.Handler):
    def __init__(self, part):
        super().__init__()
        self.part, self.found = part, threading.Event()

    def emit(self, record):
        if self.part in record.getMessage():
            self.found.set()

def test_fails(kafka_broker, kafka_topic):
    kafka_broker.produce(kafka_topic, "x")
    closed = Waiting("a frame claims")  # the loop logs it some time after the connection is closed
    LOG.addHandler(closed)
    raw = socket.create_connection(kafka_broker.bootstrap.split(":"))
    raw.sendall(b"\\xff" * 8)
    assert raw.recv(1) == b""
    assert closed.found.wait(30)
    LOG.info("a line of the broker")
    LOG.warning("a warning of the broker")
    assert False

def test_levels(kafka_broker, caplog):
    LOG.info("nobody asked for this level")
    assert caplog.records == []
    LOG.warning("but for this one")
    assert [each.message for each in caplog.records] == ["but for this one"]
    with caplog.at_level("DEBUG", "kafkacore"):
        LOG.debug("now for this one, too")
    assert len(caplog.records) == 2
"""
CALLED = """
import pytest
from kafkacore.testing import Broker

def ask(broker):
    broker.consume("a", timeout_seconds=0.01)  # the test's own

@pytest.mark.kafka(topics=["a"])
def test_nothing_comes(kafka_broker):
    ask(kafka_broker)

def test_nobody_has_it(kafka):
    kafka.log("b")

def test_an_error_within(kafka, kafka_topic):
    kafka.produce(kafka_topic, 5)
"""
MARKERS = """
import pytest

@pytest.mark.kafka(config={})
def test_misspelt(kafka_broker): ...

@pytest.mark.kafka(configs={"num.partitions": 2})
def test_shared(kafka, kafka_topic): ...
"""
SHARED = """
import pathlib, pytest

@pytest.mark.parametrize("number", range(4))
def test(kafka, kafka_topic, number, request):
    kafka.produce(kafka_topic, "x")
    assert [each.value for each in kafka.consume(kafka_topic)] == [b"x"]
    with pathlib.Path("seen").open("a") as file:
        file.write(kafka.bootstrap + "\\n")
    if request.config.getoption("--kafka-per-run"):
        with pytest.raises(AttributeError, match="must use the fixture kafka_broker"):
            kafka.refuse("Produce", error=19)

def test_fails_where_all_share_one(kafka, kafka_topic, request):
    kafka.produce(kafka_topic, "x")
    assert not request.config.getoption("--kafka-per-run")
"""
LIGHT = """
import sys

def test_light():
    assert "kafkacore.testing.plugin" in sys.modules
    heavy = [name for name in sys.modules
             if name.startswith(("kafkacore._fast", "kafkacore.server", "uvloop", "numpy", "asyncio"))]
    assert heavy == []

def test_used(kafka):
    assert "kafkacore._fast.world.environment" in sys.modules
"""


def run(directory: Path, *options: str) -> str:
    """Runs pytest without the other plugins of this environment, because some of them import asyncio. The tests of the
    examples show that pytest finds our plugin through its entry point."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    own = ["-p", "kafkacore.testing.plugin", "-p", "no:cacheprovider", "--strict-markers"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *own, *options],
        cwd=directory,
        env=plain | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns the output of pytest for a project that uses the fixtures in all ways."""
    directory = tmp_path_factory.mktemp("project")
    for name, text in (
        ("together", TOGETHER),
        ("faults", FAULTS),
        ("shown", SHOWN),
        ("called", CALLED),
        ("markers", MARKERS),
    ):
        (directory / f"test_{name}.py").write_text(text, encoding="utf-8")
    return run(directory, "-v")


def test_fixtures_work_together(told: str) -> None:
    assert len(re.findall(r"^test_together\.py::.* PASSED", told, re.MULTILINE)) == 4, told


def test_fault_ends_with_its_test(told: str) -> None:
    assert len(re.findall(r"^test_faults\.py::.* PASSED", told, re.MULTILINE)) == 2, told


def test_failed_test_shows_the_last_requests_and_log_lines(told: str) -> None:
    assert re.search(r"^test_shown\.py::test_fails FAILED", told, re.MULTILINE), told
    section = told[told.index("last requests of kafka_broker (call)") :]
    assert re.search(
        r"#\d+ Produce v12 of 'kafkacore\.testing' for test-fails\.main\.\d+, answered well after", section
    )
    section = section[section.index("log of kafkacore (call)") :]
    assert "kafkacore.network: a line of the broker" in section
    assert "kafkacore.network: a warning of the broker" in section
    assert "a frame claims -1 bytes" in section


def test_refused_call_is_reported_at_its_line(told: str) -> None:
    def shown(name: str) -> str:
        return told[told.index(f"_ {name} _") :].partition("\n____")[0]

    refused, waited, within = map(shown, ("test_nobody_has_it", "test_nothing_comes", "test_an_error_within"))
    assert "there is no topic called 'b'" in refused
    assert "0 of 1 records of a-0" in waited
    assert "# the test's own" in waited
    for each in (refused, waited):
        assert "kafkacore/testing" not in each
        assert "concurrent" not in each
    assert "kafkacore/testing/client.py" in within


def test_plugin_does_not_change_the_log_level_of_others(told: str) -> None:
    assert re.search(r"^test_shown\.py::test_levels PASSED", told, re.MULTILINE), told


def test_invalid_marker_is_refused_with_the_reason(told: str) -> None:
    assert len(re.findall(r"^test_markers\.py::.* ERROR", told, re.MULTILINE)) == 2, told
    assert "the marker kafka does not accept config; its form is kafka(configs=" in told
    assert "configs in the marker kafka need a broker of the test's own: use kafka_broker" in told
    assert "def _marked" not in told


def test_plugin_loads_no_heavy_module_before_a_fixture_is_used(tmp_path: Path) -> None:
    (tmp_path / "test_light.py").write_text(LIGHT, encoding="utf-8")
    told = run(tmp_path)
    assert "2 passed" in told, told


def test_pytest_does_not_rewrite_modules_of_the_broker() -> None:
    """By default, pytest would rewrite the asserts of these modules, as it does for every distribution with a
    plugin."""
    from kafkacore.server import broker

    assert type(broker.__loader__).__name__ == "SourceFileLoader"


@pytest.mark.parametrize(("options", "brokers"), [((), 2), (("--kafka-per-run",), 1)])
def test_workers_of_xdist_have_a_broker_each_or_share_one_and_failed_tests_show_its_requests(
    tmp_path: Path, options: tuple[str, ...], brokers: int
) -> None:
    (tmp_path / "test_shared.py").write_text(SHARED, encoding="utf-8")
    told = run(tmp_path, "-p", "xdist.plugin", "-n", "2", *options)
    assert ("4 passed" if options else "5 passed") in told, told
    assert len(set((tmp_path / "seen").read_text(encoding="utf-8").split())) == brokers
    if options:
        section = told[told.index("last requests of kafka, of all workers (call)") :]
        assert re.search(r"#\d+ Produce v12 of 'kafkacore\.testing' for test-fails-where-all-share-one\.gw", section)
        assert re.search(r"kafkacore\.server: node 1 is ready", section[section.index("log of kafkacore (call)") :])
