"""Runs every example unchanged, as a user runs a copy of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from processes import PEERS, ROOT, need

EXAMPLES = ROOT / "examples"
NEED_NODE = "no node 20 and npm: apt install nodejs npm, then make peers"
NEED_MAVEN = "no Java 17 and Maven: apt install openjdk-17-jdk-headless maven"
NEED_BUILD = "no .venv/bin/kafkacore: make build"


def run(arguments: list[str], directory: Path, timeout_s: float) -> str:
    """Runs a command that must succeed. Returns its output."""
    program = ROOT / ".venv" / "bin" / "kafkacore"
    need(program.exists(), NEED_BUILD)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        arguments,
        cwd=directory,
        # Maven's own process is so short that an optimizing compiler would not pay off.
        env=environment | {"KAFKACORE": str(program), "MAVEN_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-8000:]}"
    return done.stdout


@pytest.mark.timeout(180)
def test_python_examples_pass(tmp_path: Path) -> None:
    """All tests run together. Each of them imports modules from its own folder, as if pytest ran in that folder."""
    folders = ["confluent-kafka", "aiokafka", "kafka-python", "faststream"]
    for name in folders:
        shutil.copytree(EXAMPLES / name, tmp_path / name)
    told = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *folders], tmp_path, 150)
    assert "9 passed" in told


@pytest.mark.timeout(400)
def test_junit_example_passes(tmp_path: Path) -> None:
    need(shutil.which("mvn") and shutil.which("javac"), NEED_MAVEN)
    shutil.copytree(EXAMPLES / "junit", tmp_path / "junit", ignore=shutil.ignore_patterns("target"))
    run(["mvn", "-B", "-q", "test"], tmp_path / "junit", 380)
    [report] = (tmp_path / "junit" / "target" / "surefire-reports").glob("*.txt")
    assert "Tests run: 1, Failures: 0, Errors: 0, Skipped: 0" in report.read_text(encoding="utf-8")


@pytest.mark.timeout(120)
def test_kafkajs_example_passes(tmp_path: Path) -> None:
    need(shutil.which("node"), NEED_NODE)
    modules = PEERS / "kafkajs" / "node_modules"
    need(modules.exists(), NEED_NODE)
    shutil.copytree(EXAMPLES / "kafkajs", tmp_path / "kafkajs", ignore=shutil.ignore_patterns("node_modules"))
    (tmp_path / "kafkajs" / "node_modules").symlink_to(modules)
    told = run(["npm", "test", "--silent"], tmp_path / "kafkajs", 100)
    assert "# pass 1" in told or "pass 1" in told
    # Without kafkacore, the only error is the one that says so.
    missing = os.environ | {"KAFKACORE": str(tmp_path / "kafkacore")}
    command = ["npm", "test", "--silent"]
    failed = subprocess.run(
        command, cwd=tmp_path / "kafkajs", env=missing, capture_output=True, text=True, timeout=100, check=False
    )
    assert failed.returncode == 1
    assert f"cannot run {tmp_path}/kafkacore: install kafkacore, or set KAFKACORE to its path" in failed.stdout
    assert "TypeError" not in failed.stdout
