"""`python -m benchmarks.zookeeper` (Appendix A of the controller redesign) with very small sizes. Both clients finish
each experiment, on one server and on an ensemble."""

import json
import subprocess
import sys

import pytest
from benchmarks.zookeeper.experiments import BATCHED, CLIENTS, EXPERIMENTS

from processes import ROOT, need_matplotlib
from zookeepers import need_zookeeper

pytestmark = pytest.mark.timeout(300)
RUNS, BATCHES = 2, (1, 50)


def test_benchmark_of_the_redesign_measures_each_experiment_when_sizes_are_small(tmp_path):
    need_zookeeper()
    need_matplotlib()
    command = [
        sys.executable, "-m", "benchmarks.zookeeper", "--znodes", "100", "--sync-requests", "10", "--runs", RUNS,
        "--servers", "1", "3", "--batches", *BATCHES, "--directory", tmp_path, "--out", tmp_path,
    ]  # fmt: skip
    done = subprocess.run(
        [str(word) for word in command], cwd=ROOT, capture_output=True, text=True, timeout=270, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    measured = {(row["servers"], row["experiment"], row["batch"], row["client"]) for row in rows}
    assert measured == {
        (servers, experiment, batch, client)
        for servers in (1, 3)
        for experiment in EXPERIMENTS
        for batch in (BATCHES if experiment in BATCHED else (0,))
        for client in CLIENTS
    }
    assert [row for row in rows if row["failed"] or len(row["ms"]) != RUNS or min(row["ms"]) <= 0] == []
    table = (tmp_path / "table.md").read_text()
    assert all(f"| {experiment} |" in table for experiment in EXPERIMENTS)
    assert (tmp_path / "plot.png").stat().st_size > 0
