"""The pytest plugin. It provides the fixtures `kafka`, `kafka_topic` and `kafka_broker`, the marker `kafka`, and
reports for failed tests.

The plugin imports no compiled or large module before a fixture is used, because every pytest run in an environment with
kafkacore loads this module.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from types import TracebackType

    from kafkacore.testing.broker import Broker
    from kafkacore.testing.log_lines import LogLines
    from kafkacore.testing.remote import RemoteBroker

MARKER: Final = (
    "kafka(configs={...}, topics=[...], time='running', partitions=1, topic_configs={...}): the broker of "
    "`kafka_broker` (configs, topics, time) and the topic of `kafka_topic` (partitions, topic_configs)"
)
_BROKER_WORDS: Final = frozenset({"configs", "topics", "time", "start_ms", "record"})
_TOPIC_WORDS: Final = frozenset({"partitions", "topic_configs"})
_WORKER_KEY: Final = "kafkacore_bootstrap"  # a key in the input of pytest-xdist's workers
_OF_ALL: Final = (
    # Marks the report of a test that failed in a worker and used the broker of the whole run.
    "kafkacore_of_all_workers"
)
_NAMES: Final = itertools.count(1)
_REQUESTS_SHOWN: Final = 20

# Frames of these packages do not help the reader of a traceback. They are above the test's frame, or between this frame
# and the error.
_WITHIN: Final = frozenset({"kafkacore", "asyncio", "concurrent", "contextlib", "threading"})
_PYTEST: Final = frozenset({"_pytest", "pluggy"})

_shared = pytest.StashKey["Broker"]()  # the broker of the whole run, in the controlling process of pytest-xdist
_session = pytest.StashKey["Broker | RemoteBroker"]()
_lines = pytest.StashKey["LogLines"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafka", "brokers for tests (kafkacore)")
    group.addoption(
        "--kafka-per-run",
        action="store_true",
        default=None,
        help="with pytest-xdist: the `kafka` fixtures of all workers share one broker, instead of one for each worker",
    )
    parser.addini("kafka_per_run", "the same as --kafka-per-run", type="bool", default=False)
    parser.addini(
        "kafka_record",
        "brokers record their requests, so that reports of failed tests show the last ones",
        type="bool",
        default=True,
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Keeps pytest from rewriting the asserts of kafkacore. pytest rewrites the asserts of every package with a plugin,
    but no test needs explanations of kafkacore's own asserts, and the import would take several times as long. In
    addition, pytest parses the modules that it rewrites. Nodes import modules on threads, and in CPython 3.11 two
    threads cannot parse at the same time (gh-106905). pytest has no public option to turn the rewriting off."""
    hook = early_config.pluginmanager.rewrite_hook
    getattr(hook, "_must_rewrite", set()).discard("kafkacore")
    getattr(hook, "_marked_for_rewrite_cache", {}).clear()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def pytest_unconfigure(config: pytest.Config) -> None:
    broker = config.stash.get(_shared, None)
    if broker is not None:
        broker.close()
        _log_lines(config).__exit__()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Gives a worker the address of the shared broker. pytest-xdist calls this before it starts the worker."""
    config = node.config
    if not _per_run(config):
        return
    if _shared not in config.stash:
        from kafkacore.testing.broker import Broker

        with contextlib.ExitStack() as stack:
            stack.enter_context(_log_lines(config))
            config.stash[_shared] = Broker(record=config.getini("kafka_record"))
            stack.pop_all()  # keeps the broker open until pytest ends
    node.workerinput[_WORKER_KEY] = config.stash[_shared].bootstrap


# --- fixtures ---


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Broker | RemoteBroker]:
    """Provides one broker for all tests in this process. Clients connect to `kafka.bootstrap`. A test's faults end with
    the test. Its topics and the state of the clock remain.

    With pytest-xdist, each worker has its own broker. With --kafka-per-run, all workers share one broker in the
    controlling process.
    """
    config = request.config
    bootstrap = getattr(config, "workerinput", {}).get(_WORKER_KEY)
    if bootstrap is not None:
        from kafkacore.testing.remote import RemoteBroker

        with RemoteBroker(bootstrap) as remote:
            config.stash[_session] = remote
            yield remote
        return
    from kafkacore.testing.broker import Broker

    with _log_lines(config), Broker(record=config.getini("kafka_record")) as broker:
        config.stash[_session] = broker
        yield broker


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Provides a broker that only this test uses, with the arguments of the test's `kafka` marker."""
    from kafkacore.testing.broker import Broker

    words = {"record": request.config.getini("kafka_record"), **_marked(request.node, _BROKER_WORDS)}
    with _log_lines(request.config), Broker(**words) as broker:
        yield broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> str:
    """Provides the name of a new topic for this test. The topic is on the test's `kafka_broker` if the test uses that
    fixture, and otherwise on `kafka`."""
    own = "kafka_broker" in request.fixturenames
    broker = request.getfixturevalue("kafka_broker" if own else "kafka")
    plain = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    words = _marked(request.node, _TOPIC_WORDS)
    name: str = broker.create_topic(
        f"{plain[:100]}.{worker}.{next(_NAMES)}", words.get("partitions", 1), configs=words.get("topic_configs", {})
    )
    return name


def _marked(item: pytest.Item, wanted: frozenset[str]) -> dict[str, Any]:
    """Returns the arguments of the markers. The nearest marker takes precedence. Raises UsageError for an unknown
    argument."""
    found: dict[str, Any] = {}
    for marker in item.iter_markers("kafka"):
        wrong = [*map(repr, marker.args), *(set(marker.kwargs) - _BROKER_WORDS - _TOPIC_WORDS)]
        if wrong:
            raise pytest.UsageError(
                f"{item.nodeid}: the marker kafka does not accept {', '.join(wrong)}; its form is {MARKER}"
            )
        found = {**marker.kwargs, **found}
    if not wanted & _BROKER_WORDS and "kafka_broker" not in getattr(item, "fixturenames", ()):
        lost = sorted(found.keys() & _BROKER_WORDS)
        if lost:
            raise pytest.UsageError(
                f"{item.nodeid}: {', '.join(lost)} in the marker kafka need a broker of the test's own: use "
                "kafka_broker"
            )
    return {key: value for key, value in found.items() if key in wanted}


def _per_run(config: pytest.Config) -> bool:
    return bool(config.getoption("--kafka-per-run") or config.getini("kafka_per_run"))


# --- around each test ---


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    broker = item.config.stash.get(_session, None)
    if broker is not None:
        broker.reset()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if call.excinfo is not None and not item.config.getoption("fulltrace"):
        _tell_where_the_test_called(call.excinfo)
    report = yield
    if report.failed:
        for name in ("kafka_broker", "kafka"):
            broker = getattr(item, "funcargs", {}).get(name)
            if broker is not None and hasattr(broker, "requests"):
                _show_requests(report, broker, name)
            elif broker is not None:
                setattr(report, _OF_ALL, True)
        _show_lines(report, item.config)
    if report.when == "teardown" and (kept := item.config.stash.get(_lines, None)) is not None:
        kept.lines.clear()
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds the last requests to the report of a failed test that used the shared broker of the run. Only the
    controlling process of pytest-xdist has these requests."""
    worker = getattr(report, "node", None)
    if worker is not None and getattr(report, _OF_ALL, False) and _shared in worker.config.stash:
        _show_requests(report, worker.config.stash[_shared], "kafka, of all workers")
        _show_lines(report, worker.config)


def _show_requests(report: pytest.TestReport, broker: Broker, whose: str) -> None:
    shown = broker.requests.show(_REQUESTS_SHOWN)
    if shown:
        report.sections.append((f"last requests of {whose} ({report.when})", shown))


def _show_lines(report: pytest.TestReport, config: pytest.Config) -> None:
    lines = config.stash.get(_lines, None)
    if lines is not None and lines.lines:
        report.sections.append((f"log of kafkacore ({report.when})", "\n".join(lines.lines)))


def _tell_where_the_test_called(failure: pytest.ExceptionInfo[BaseException]) -> None:
    """Removes kafkacore's own frames from an error that kafkacore raised on purpose, so that the traceback ends at the
    test's line. Other errors keep all their frames, because they may be bugs in kafkacore."""
    wanted = TimeoutError, ValueError, pytest.UsageError
    if not (type(failure.value).__module__.startswith("kafkacore.") or isinstance(failure.value, wanted)):
        return
    asked, at = failure.tb, failure.tb.tb_next
    while at is not None:
        if _root(at) not in _WITHIN:
            asked = at
        at = at.tb_next
    if asked.tb_next is not None and _root(asked) in _PYTEST:  # one of kafkacore's fixtures made the call
        asked = asked.tb_next
    if asked.tb_next is not None and "kafkacore" in (_root(asked), _root(asked.tb_next)):
        asked.tb_next = None


def _root(entry: TracebackType) -> str:
    """Returns the package that contains the code of a frame."""
    return str(entry.tb_frame.f_globals.get("__name__", "")).partition(".")[0]


def _log_lines(config: pytest.Config) -> LogLines:
    lines = config.stash.get(_lines, None)
    if lines is None:
        from kafkacore.testing.log_lines import LogLines

        lines = config.stash[_lines] = LogLines()
    return lines
