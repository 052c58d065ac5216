"""`python -m benchmarks.replication` with very small sizes. Each row must print its figures."""

import json
import subprocess
import sys

import pytest

from processes import ROOT

pytestmark = pytest.mark.timeout(600)
FIGURES = {
    "round-trip": "p50 us",
    "produce": "MB/s per CPU-s",
    "follower": "CPU s per GB",
    "reassign": "p99 of others ms",
    "shutdown": "longest stall ms",
    "create": "first records acknowledged s",
    "idle": "% of a core",
    "leader-kill": "next acknowledged s",
    "controller-kill": "next acknowledged s",
}


def test_benchmark_of_replication_measures_each_row_when_sizes_are_small(tmp_path):
    command = [
        sys.executable, "-m", "benchmarks.replication", "--smoke", "--brokers", "kafkacore",
        "--directory", tmp_path, "--out", tmp_path,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=570, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "replication.json").read_text())["results"]
    assert results.keys() == FIGURES.keys()
    for row, figure in FIGURES.items():
        [figures] = results[row]["kafkacore"]
        assert figures[figure] > 0, (row, figures)
    for row in ("follower", "create"):
        assert results[row]["floor"][0][FIGURES[row]] > 0
