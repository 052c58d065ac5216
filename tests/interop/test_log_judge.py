"""Damaged or unusual log directories. kafkacore and Apache Kafka's LogManager each load such a directory, and must show
their clients the same contents.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

import brokers
from brokers import need_jars
from damaged_logs import ROWS, described, prepare

pytestmark = pytest.mark.peer("apache-4.3")

JUDGE = Path(__file__).parent / "java" / "LogJudge.java"
RELEASE = "4.3.1"
JAVA_TIMEOUT_S = 60


def java(*arguments: object) -> str:
    command = [*brokers.java(RELEASE, "512m"), str(JUDGE), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fields(line: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in line.split(" ") if "=" in part)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[list[str], list[str]]]:
    """Makes two copies of the directory of every row. Returns our description of the contents and Apache Kafka's. One
    Java process reads all of its copies."""
    need_jars(RELEASE)
    root, now_ms = tmp_path_factory.mktemp("judge"), int(time.time() * 1000) - 100_000
    for number, row in enumerate(ROWS):
        prepare(root / "ours" / str(number), now_ms, row)
        shutil.copytree(root / "ours" / str(number), root / "theirs" / str(number))
    directories = [root / "theirs" / str(number) for number in range(len(ROWS))]
    theirs: dict[str, list[str]] = {str(directory): [] for directory in directories}
    for line in java("describe", now_ms, *directories).splitlines():
        directory, _, rest = line.partition(" ")
        if directory in theirs:
            theirs[directory].append(rest)
    return [
        (described(root / "ours" / str(number), now_ms), theirs[str(directory)])
        for number, directory in enumerate(directories)
    ]


@pytest.mark.parametrize("number", range(len(ROWS)), ids=[row.name for row in ROWS])
def test_client_finds_the_same_as_with_apache_kafka(judged: list[tuple[list[str], list[str]]], number: int) -> None:
    row, (ours, theirs) = ROWS[number], judged[number]
    if "all" in row.differs:
        assert theirs == ["refused KafkaStorageException"]
        return
    assert len(ours) == len(theirs) == 1
    mine, its = fields(ours[0]), fields(theirs[0])
    assert mine.keys() == its.keys()
    assert {name for name in mine if mine[name] != its[name]} == row.differs
