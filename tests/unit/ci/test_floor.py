"""The C program of `benchmarks/floor`, which gives a lower bound for the figures of brokers. It builds, and does its
four kinds of work.
"""

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

FLOOR = Path(__file__).parents[3] / "benchmarks" / "floor" / "floor.py"


@pytest.fixture(autouse=True)
def without_sanitizer(monkeypatch):
    """Removes the preloaded sanitizer runtime of the tests from the environment, so that it affects neither the
    compiler nor the compiled program."""
    monkeypatch.delenv("LD_PRELOAD", raising=False)


@pytest.fixture
def program(tmp_path):
    spec = importlib.util.spec_from_file_location("floor", FLOOR)
    floor = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(floor)
    return floor.build(tmp_path)


@pytest.mark.parametrize(
    ("work", "figures"),
    [
        ("produce", {"mb_per_s", "mb_per_cpu_s"}),
        ("fetch", {"mb_per_s", "mb_per_cpu_s"}),
        ("echo", {"p50_us", "p99_us", "cpu_us"}),
        ("create", {"seconds", "cpu_seconds"}),
    ],
)
def test_the_floor_is_measured(program, tmp_path, work, figures):
    done = subprocess.run(
        [program, work, tmp_path, "1000", "200"], capture_output=True, text=True, check=True, timeout=60
    )
    measured = json.loads(done.stdout)
    assert figures <= measured.keys()
    assert all(measured[each] > 0 for each in figures)
