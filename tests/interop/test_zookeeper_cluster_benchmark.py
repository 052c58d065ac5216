"""`python -m benchmarks.zookeeper.cluster` with very small sizes. Each row must print its figures."""

import json
import subprocess
import sys

import pytest

from processes import ROOT
from zookeepers import need_zookeeper

pytestmark = pytest.mark.timeout(600)
FIGURES = {
    "topics": "first records acknowledged s",
    "failover": "after the session s",
    "shutdown": "longest stall ms",
    "failure": "longest stall after the session ms",
}


def test_benchmark_of_zookeeper_clusters_measures_each_row_when_sizes_are_small(tmp_path):
    need_zookeeper()
    command = [
        sys.executable, "-m", "benchmarks.zookeeper.cluster", "--smoke", "--brokers", "kafkacore",
        "--directory", tmp_path, "--out", tmp_path,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=570, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "zookeeper-cluster.json").read_text())["results"]
    assert results.keys() == FIGURES.keys()
    for row, figure in FIGURES.items():
        [figures] = results[row]["kafkacore"]
        assert figures[figure] > 0, (row, figures)
