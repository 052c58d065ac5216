"""Runs the tests in the source distributions of Kafka clients against a kafkacore node, and judges the results.

suites.toml lists the suites and explains their expected failures. A failure without an explanation fails the run. If a
test passes although suites.toml explains its failure, the script reports it. Each suite has its own environment, node
and report below build/peer-tests.

Usage: python ci/peer-tests/run.py [PROJECT[==VERSION] ...]
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "peer-tests"
STAND_INS = HERE / "stand-ins"
KAFKACORE = ROOT / ".venv" / "bin" / "kafkacore"
NEEDED = ["pytest", "pytest-mock", "pytest-timeout"]
TEST_TIMEOUT_S = 25
TRIES_OF_RACING = 3
SUITE_TIMEOUT_S = 600
READY_TIMEOUT_S = 30
SHOWN_CHARACTERS = 1500  # the part of a failure's message that is shown


class Outcome(NamedTuple):
    """The outcome of a test. `state` is passed, failed or skipped. `said` is the reason for a failure or a skip.
    `place` is pytest's id."""

    test: str
    place: str
    state: str
    said: str


class Suite:
    """One source distribution, as a table of suites.toml describes it."""

    def __init__(self, described: dict[str, Any]) -> None:
        self.project: str = described["project"]
        self.version: str = described["version"]
        self.name = f"{self.project}=={self.version}"
        self.tests: list[str] = described["tests"]
        self.needs: list[str] = described.get("needs", [])
        self.adds: dict[str, str] = described.get("adds", {})
        self.environment: dict[str, str] = described.get("environment", {})
        self.node: dict[str, str] = described.get("node", {})
        self.holds: str = described["holds"]
        self.explained = {test: each["why"] for each in described.get("explained", []) for test in each["tests"]}
        self.racing: list[str] = [test for each in described.get("racing", []) for test in each["tests"]]
        self.directory = BUILD / f"{self.project}-{self.version}"
        self.python = self.directory / "venv" / "bin" / "python"

    def prepare(self) -> Path:
        """Returns the directory of the source distribution. Downloads, unpacks and completes it, and creates the
        environment in which it is installed."""
        source = self.directory / "source"
        complete = self.directory / ".complete"
        wanted = json.dumps([self.name, self.needs, NEEDED])
        if not complete.exists() or complete.read_text() != wanted:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory.mkdir(parents=True)
            say(f"{self.name}: fetching its source distribution")
            subprocess.run([sys.executable, "-m", "venv", self.directory / "venv"], check=True)
            self.pip("download", "--no-deps", "--no-binary", self.project, "--dest", self.directory, self.name)
            [archive] = self.directory.glob("*.tar.gz")
            with tarfile.open(archive) as packed:
                packed.extractall(self.directory, filter="data")
            [unpacked] = (each.parent for each in self.directory.glob("*/PKG-INFO"))
            unpacked.rename(source)
            self.pip("install", source, *self.needs, *NEEDED)
            complete.write_text(wanted)
        for place, stand_in in self.adds.items():
            target = source / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(STAND_INS / stand_in, target) if stand_in else target.write_text("")
        return source

    def pip(self, verb: str, *arguments: str | Path) -> None:
        command = [self.python, "-m", "pip", verb, "--quiet", "--disable-pip-version-check", *arguments]
        subprocess.run(command, check=True)

    def run(self, source: Path, bootstrap: str) -> list[Outcome]:
        """Returns the outcome of every test. Repeats tests that sometimes fail because of the client itself."""
        found = {each.test: each for each in self.attempt(source, bootstrap, self.tests)}
        for _ in range(TRIES_OF_RACING - 1):
            again = [each.place for each in found.values() if each.state == "failed" and self.races(each.test)]
            if again:
                say(f"  once more: {' '.join(again)}")
                found |= {each.test: each for each in self.attempt(source, bootstrap, again)}
        return list(found.values())

    def attempt(self, source: Path, bootstrap: str, tests: list[str]) -> list[Outcome]:
        """Runs tests once. Raises RuntimeError if pytest itself fails."""
        report = self.directory / "report.xml"
        report.unlink(missing_ok=True)
        # The projects' own configuration names plugins that are not installed, and logs every byte.
        options = ["-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider", "--tb=short", "-q"]
        limits = [f"--timeout={TEST_TIMEOUT_S}", f"--junitxml={report}"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        environment |= {"KAFKA_URI": f"kafka://{bootstrap}", "KAFKA_ROOT": str(source)} | self.environment
        with (self.directory / "pytest.log").open("ab") as log:
            done = subprocess.run(
                [self.python, "-m", "pytest", *options, *limits, *tests],
                cwd=source, env=environment, stdout=log, stderr=log, timeout=SUITE_TIMEOUT_S, check=False,
            )  # fmt: skip
        if done.returncode not in (0, 1) or not report.exists():
            raise RuntimeError(f"{self.name}: pytest ended with {done.returncode}; see {log.name}")
        return list(outcomes(report))

    def races(self, test: str) -> bool:
        return any(fnmatch.fnmatchcase(test, pattern) for pattern in self.racing)

    def why(self, test: str) -> str | None:
        return next((why for pattern, why in self.explained.items() if fnmatch.fnmatchcase(test, pattern)), None)


def outcomes(report: Path) -> Iterator[Outcome]:
    """Yields the outcome of every test. A test that fails twice, in the test and in its teardown, is one failure."""
    found: dict[str, Outcome] = {}
    for case in ET.parse(report).iter("testcase"):
        module, name = case.get("classname", ""), case.get("name", "")
        place = f"{module.replace('.', '/')}.py::{name}"
        test = f"{module.removeprefix('test.integration.')}.{name}"
        wrong = next((each for each in case if each.tag in ("failure", "error")), None)
        skipped = case.find("skipped")
        if wrong is not None:
            outcome = Outcome(test, place, "failed", f"{wrong.get('message', '')}\n{wrong.text or ''}")
        elif skipped is not None:
            outcome = Outcome(test, place, "skipped", skipped.get("message", ""))
        else:
            outcome = Outcome(test, place, "passed", "")
        if test not in found or found[test].state != "failed":
            found[test] = outcome
    yield from found.values()


@contextlib.contextmanager
def node(suite: Suite) -> Iterator[str]:
    """Runs a new node with advertised.listeners set, as in the projects' own brokers. Yields its bootstrap address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    advertised = f"--override=advertised.listeners=PLAINTEXT://127.0.0.1:{port}"
    settings = [advertised, *(f"--override={key}={value}" for key, value in suite.node.items())]
    with (suite.directory / "node.log").open("wb") as log, subprocess.Popen(
        [KAFKACORE, "dev", "--json", "--with-parent", f"--port={port}", *settings], stdout=subprocess.PIPE, stderr=log
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the node did not become ready; see {log.name}")
            yield json.loads(line)["bootstrap"]
            if process.poll() is not None:
                raise RuntimeError(f"{suite.name}: the node has ended with {process.returncode}; see {log.name}")
        finally:
            process.terminate()
            process.wait(READY_TIMEOUT_S)


def say(line: str) -> None:
    print(line, flush=True)


def judge(suite: Suite, found: list[Outcome]) -> bool:
    """Prints the results of a suite. Returns False if a failure has no explanation."""
    counts = Counter(each.state for each in found)
    failed = [each for each in found if each.state == "failed"]
    unexplained = [each for each in failed if suite.why(each.test) is None]
    for each in found:
        if each.state == "passed":
            say(
                f"  pass {each.test}"
                + ("   and suites.toml explains its failure: remove that" if suite.why(each.test) else "")
            )
    for each in failed:
        why = suite.why(each.test)
        say(f"  fail {each.test}: {why}" if why else f"  FAIL {each.test}: suites.toml has no explanation")
    skipped = Counter((each.test.split(".")[0], each.said) for each in found if each.state == "skipped")
    for (module, reason), times in skipped.items():
        say(f"  skip {times} of {module}, skipped by the suite itself: {reason}")
    for each in unexplained:
        say(f"\n{each.test}\n{each.said[:SHOWN_CHARACTERS]}\n")
    if not counts["passed"]:
        say("  FAIL no test passed")
    for pattern in (*suite.explained, *suite.racing):
        if not any(fnmatch.fnmatchcase(each.test, pattern) for each in found):
            say(f"  suites.toml names a test that does not exist: {pattern}")
    say(
        f"{suite.name}: {counts['passed']} passed, {len(failed) - len(unexplained)} failed as explained, "
        f"{len(unexplained)} failed unexplained, {counts['skipped']} skipped"
    )
    return not unexplained and counts["passed"] > 0


def main(wanted: list[str]) -> int:
    described = tomllib.loads((HERE / "suites.toml").read_text(encoding="utf-8"))["suite"]
    suites = [Suite(each) for each in described]
    chosen = [each for each in suites if not wanted or each.name in wanted or each.project in wanted]
    if not chosen:
        raise SystemExit(f"no such suite; the suites are {', '.join(each.name for each in suites)}")
    verdicts = []
    for suite in chosen:
        source = suite.prepare()
        say(f"\n{suite.name}: {suite.holds}")
        started = time.monotonic()
        (suite.directory / "pytest.log").unlink(missing_ok=True)
        with node(suite) as bootstrap:
            found = suite.run(source, bootstrap)
        verdicts.append(judge(suite, found))
        say(f"  in {time.monotonic() - started:.0f} s; the whole output is in {suite.directory / 'pytest.log'}")
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
