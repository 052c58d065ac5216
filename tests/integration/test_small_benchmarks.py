"""Benchmarks that need no other broker, with very small sizes. Each must print its figures."""

import os
import re
import subprocess
import sys

import pytest

from processes import ROOT

pytestmark = pytest.mark.timeout(300)
COMMANDS = {
    "controller": ["--rows", "zone", "snapshot", "--counts", "300", "--rounds", "1"],
    "groups": ["--brokers", "kafkacore", "--only", "commits", "--rounds", "1", "--directory", ".", "--out", "."],
    "node.sampling": ["--rounds", "1", "--requests", "50", "--directory", "."],
    "quorum": ["--rounds", "1", "--commits", "3"],
    "testing": ["--rounds", "1", "--tests", "2"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_benchmark_prints_figures_when_sizes_are_small(name, tmp_path):
    command = [sys.executable, "-m", f"benchmarks.{name}", *COMMANDS[name]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=270, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d", done.stdout), done.stdout
