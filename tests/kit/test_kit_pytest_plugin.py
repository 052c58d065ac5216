"""The pytest plugin, in runs of pytest of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.timeout(60)


def test_it_loads_nothing_that_is_compiled_nor_heavy_before_a_fixture_is_used(pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_light():
            assert "kafkacore.testing.plugin" in sys.modules
            heavy = [name for name in sys.modules
                     if name.startswith(("kafkacore._fast", "kafkacore.server", "uvloop", "numpy", "asyncio"))]
            assert heavy == []

        def test_used(kafka):
            assert "kafkacore._fast.env" in sys.modules
        """
    )
    # Without the plugins of this environment, some of which load asyncio themselves.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "kafkacore.testing.plugin", "-p", "no:cacheprovider"],
        cwd=pytester.path,
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout


def test_the_fixtures_work_together(pytester) -> None:
    pytester.makepyfile(
        """
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
    )
    pytester.runpytest_subprocess("-p", "no:randomly").assert_outcomes(passed=4)


def test_a_fault_of_one_test_is_none_of_the_next(pytester) -> None:
    pytester.makepyfile(
        """
        def test_first(kafka, kafka_topic):
            kafka.refuse("Produce", error="NOT_ENOUGH_REPLICAS")
            kafka.delay("Metadata", seconds=60)
            assert len(kafka.faults()) == 2

        def test_second(kafka, kafka_topic):
            assert kafka.faults() == []
            assert len(kafka.requests) == 0 or kafka.requests[0].api == "CreateTopics"
            assert kafka.produce(kafka_topic, "x") == 0
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=2)


def test_a_failed_test_shows_the_last_requests_and_lines(pytester) -> None:
    pytester.makepyfile(
        """
        import logging, socket

        def test_fails(kafka_broker, kafka_topic):
            kafka_broker.produce(kafka_topic, "x")
            raw = socket.create_connection(kafka_broker.bootstrap.split(":"))
            raw.sendall(b"\\xff" * 8)
            assert raw.recv(1) == b""
            logging.getLogger("kafkacore.network").info("a line of the broker")
            logging.getLogger("kafkacore.network").warning("a warning of the broker")
            assert False

        def test_passes(kafka_broker, caplog):
            logging.getLogger("kafkacore.network").info("nobody asked for this level")
            assert caplog.records == []
            logging.getLogger("kafkacore.network").warning("but for this one")
            assert [each.message for each in caplog.records] == ["but for this one"]
            with caplog.at_level("DEBUG", "kafkacore"):
                logging.getLogger("kafkacore.network").debug("now for this one, too")
            assert len(caplog.records) == 2
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([
        "*last requests of kafka_broker (call)*",
        "#* Produce v12 of 'kafkacore.testing' for test-fails.main.*, answered well after * ms",
        "*log of kafkacore (call)*",
        "*kafkacore.network: a line of the broker",
        "*kafkacore.network: a warning of the broker",
    ])  # fmt: skip


def test_markers_that_cannot_be_are_refused_in_words(pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.kafka(config={})
        def test_misspelt(kafka_broker): ...

        @pytest.mark.kafka(configs={"num.partitions": 2})
        def test_shared(kafka, kafka_topic): ...
        """
    )
    result = pytester.runpytest_subprocess("--strict-markers")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines_random([
        "*the marker kafka does not take config; it is kafka(configs=*",
        "*configs in the marker kafka need a broker of the test's own: use kafka_broker*",
    ])  # fmt: skip


@pytest.mark.parametrize(("options", "brokers"), [((), 2), (("--kafka-per-run",), 1)])
def test_workers_of_xdist_have_one_each_or_one_for_all(pytester, options, brokers) -> None:
    pytester.makepyfile(
        """
        import pathlib, pytest

        @pytest.mark.parametrize("number", range(4))
        def test(kafka, kafka_topic, number):
            offset = kafka.produce(kafka_topic, "x")
            assert [each.value for each in kafka.consume(kafka_topic)] == [b"x"]
            with pathlib.Path("seen").open("a") as file:
                file.write(kafka.bootstrap + "\\n")
            if "--kafka-per-run" in OPTIONS:
                with pytest.raises(AttributeError, match="uses kafka_broker"):
                    kafka.refuse("Produce", error=19)
        """.replace("OPTIONS", repr(options))
    )
    result = pytester.runpytest_subprocess("-n", "2", "--dist", "each" if brokers == 0 else "load", *options)
    result.assert_outcomes(passed=4)
    assert len(set((pytester.path / "seen").read_text(encoding="utf-8").split())) == brokers
