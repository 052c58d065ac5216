"""The simulator itself. Runs from many seeds pass, also from seeds that once failed. The same seed repeats a run.

`make test` runs only a part of the seeds: KAFKACORE_SIMULATED_SEEDS is the number for quorums, and
KAFKACORE_SIMULATED_CLUSTERS for whole nodes. It also runs a few new seeds, so that every run of the tests tries some
histories for the first time. A failure prints the seed. `make simulate` runs for an hour on both cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from random import SystemRandom

import pytest

from hunts import assert_found
from kafkacore.simulation.judge import Judge
from kafkacore.simulation.planted import BUGS, BY_NAME, NATIVE, RARE, PlantedBug
from kafkacore.simulation.trial import SEED_BITS, hunt, seeds_from, try_seed
from kafkacore.tools.main import main
from planted_leftovers import left_behind
from seeds import SEED

QUORUMS = ("quorum:3+1", "quorum:1", "quorum:2", "quorum:5+1")
SEEDS = int(os.environ.get("KAFKACORE_SIMULATED_SEEDS", "100"))
CLUSTERS = ("3c3b", "3c2b", "3", "1c1b", "3c")
CLUSTER_SEEDS = int(os.environ.get("KAFKACORE_SIMULATED_CLUSTERS", "8"))
CLUSTER_STEPS = 20
# Each run of the tests draws these seeds anew, even if KAFKACORE_SEED is set.
NEW_SEEDS = {"quorum:3+1": 20, "3c3b": 1, "3c2b": 1, "3": 1}
BAD_LIST = Path(__file__).parent / "bad_seeds.txt"
BAD_SEEDS = [line.split() for line in BAD_LIST.read_text().splitlines() if not line.startswith("#")]


def test_seeds_that_once_failed_pass() -> None:
    for nodes, steps, seed in BAD_SEEDS:
        verdict = try_seed(int(seed), int(steps), nodes)
        assert verdict.problem is None, verdict.line()


@pytest.mark.parametrize("nodes", QUORUMS)
def test_quorum_breaks_no_invariant_when_faults_happen(nodes: str) -> None:
    for seed in islice(seeds_from(SEED), SEEDS // len(QUORUMS)):
        verdict = try_seed(seed, nodes=nodes)
        assert verdict.problem is None, verdict.line()
        assert verdict.seen["RecordAcknowledged"], f"seed {seed} committed nothing"


@pytest.mark.parametrize("nodes", CLUSTERS)
def test_cluster_breaks_no_invariant_when_faults_happen(nodes: str) -> None:
    for seed in islice(seeds_from(SEED), max(CLUSTER_SEEDS // len(CLUSTERS), 1)):
        verdict = try_seed(seed, CLUSTER_STEPS, nodes)
        assert verdict.problem is None, verdict.line()
        assert verdict.seen["ActiveController"], f"seed {seed} had no active controller"


@pytest.mark.parametrize("nodes", NEW_SEEDS)
def test_run_breaks_no_invariant_when_nobody_has_run_the_seed_before(nodes: str) -> None:
    for _ in range(NEW_SEEDS[nodes]):
        verdict = try_seed(SystemRandom().getrandbits(SEED_BITS), CLUSTER_STEPS, nodes)
        assert verdict.problem is None, verdict.line()


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_cluster_is_the_same_in_another_interpreter_when_the_seed_is_the_same(hash_seed: str, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    arguments = ["simulate", "--seed", str(SEED), "--steps", "8", "--nodes", "3c2b", "--trace"]
    command = [sys.executable, "-m", "kafkacore.tools.main", *arguments, str(there)]
    subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": hash_seed}, check=True, timeout=500)
    assert main([*arguments, str(here)]) == 0
    assert here.read_text() == there.read_text()


def test_run_is_the_same_when_its_seed_is_the_same() -> None:
    traces: list[list[str]] = [[], []]
    for trace in traces:
        try_seed(SEED, on_event=trace.append)
    assert len(traces[0]) > 100
    assert traces[0] == traces[1]


def test_command_prints_one_line_when_all_is_well(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    assert main(["simulate", "--seed", "1", "--steps", "10", "--nodes", "quorum:3", "--trace", str(trace)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("seed 1: all is well after ")
    assert out.count("\n") == 1
    assert "HighWatermark(" in trace.read_text()


def test_command_prints_the_broken_invariant_and_the_last_events_when_a_bug_is_planted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["simulate", "--seed", "5", "--plant", "committed-before-the-majority", "--nodes", "quorum:3"]) == 1
    *events, problem, again = capsys.readouterr().out.splitlines()
    assert problem.startswith("seed 5: CommittedStays: node ")
    command = "kafkacore simulate --seed 5 --steps 40 --nodes quorum:3 --plant committed-before-the-majority"
    assert again == f"again: {command}"
    assert any("leads epoch" in event for event in events)


def test_command_refuses_a_trace_of_many_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--runs", "2", "--trace", "trace.txt"]) == 1
    assert "--trace writes the events of one run" in capsys.readouterr().err


@pytest.mark.parametrize("nodes", ["three", "quorum:0+1", "zookeeper:0+3", "zookeeper:3+0"])
def test_command_refuses_nodes_that_name_no_cluster(nodes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--nodes", nodes]) == 1
    assert f"'{nodes}' names no cluster" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--steps", "-1"), ("--runs", "0"), ("--processes", "0")])
def test_command_refuses_a_number_that_is_too_small(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--nodes", "quorum:3", option, value])
    assert ended.value.code == 2
    assert f"argument {option}: '{value}' must be a whole number of at least" in capsys.readouterr().err


def test_help_breaks_no_name_of_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    assert {bug.name for bug in BUGS} <= set(capsys.readouterr().out.split())


def test_command_prints_only_the_verdict_when_its_nodes_warn() -> None:
    # In a process without log handlers, Python writes warnings to stderr. This process has pytest's handlers, so the
    # command runs in another one. In this run, a controller fences a broker.
    command = [
        sys.executable,
        "-m",
        "kafkacore.tools.main",
        "simulate",
        "--seed",
        "5",
        "--nodes",
        "3c2b",
        "--steps",
        "10",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("seed 5: all is well")
    assert done.stderr == ""


def test_planted_bug_leaves_nothing_behind_when_its_block_ends() -> None:
    found = {name: left for name, left in left_behind([bug.name for bug in BUGS]) if left}
    assert found == {}


@pytest.mark.parametrize("bug", [*BUGS, *NATIVE], ids=lambda bug: bug.name)
def test_planted_bug_names_checkers_of_the_judge(bug: PlantedBug) -> None:
    assert bug.found_by
    assert set(bug.found_by) <= {type(each) for each in Judge().checkers}


def test_hunt_fails_and_says_what_was_found_when_the_bug_does_not_explain_it() -> None:
    found = hunt(BY_NAME["committed-before-the-majority"], SEED, 60)
    assert found is not None
    assert_found(BY_NAME["committed-before-the-majority"], found)
    with pytest.raises(AssertionError, match=r"must break VotesGoToCompleteLogs, but the run found:\n(.*\n)+again: "):
        assert_found(BY_NAME["vote-to-a-shorter-log"], found)
    error = found._replace(invariant="AttributeError")
    with pytest.raises(AssertionError, match="must break CommittedStays"):
        assert_found(BY_NAME["committed-before-the-majority"], error)


def test_run_fails_when_a_handler_raises_an_error_that_it_should_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    async def acknowledged(*arguments: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr("kafkacore.server.handlers.broker.produce.acknowledged", acknowledged)
    verdict = try_seed(SEED, 1, "1c1b")
    assert verdict.invariant == "HandlersAnswer"
    assert "KeyError: 'a defect'" in str(verdict.problem)


def test_each_rare_bug_is_a_planted_bug() -> None:
    assert set(RARE) <= {bug.name for bug in (*BUGS, *NATIVE)}
