"""`kafkacore reassign-partitions`, `leader-election` and `replica-verification` compared with Apache Kafka's tools.

The cluster has one controller of ours and two brokers of Apache Kafka with two log directories each.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest

from processes import ROOT
from quorums import OURS
from replicated import ReplicatedCluster, Writes

pytestmark = pytest.mark.timeout(180)
RELEASE = "apache-4.3"
VERIFY_LATER = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)


@pytest.fixture(scope="module")
def cluster(tools_of_either, tmp_path_factory):
    cluster = ReplicatedCluster(
        tmp_path_factory.mktemp("cluster"),
        controllers={1: OURS},
        brokers={101: RELEASE, 102: RELEASE},
        tools=tools_of_either,
    )
    for member in cluster.brokers.values():
        text = member.properties.read_text()
        member.properties.write_text(text.replace(f"log.dirs={member.data}\n", f"log.dirs={','.join(both(member))}\n"))
    try:
        yield cluster.start("4.3")
    finally:
        cluster.close()


def both(member):
    return [f"{member.data}", f"{member.data}-2"]


@pytest.fixture
def topic(cluster, request):
    name = re.sub(r"\W+", "-", request.node.name).strip("-")
    cluster.create(name, [[101], [102]])
    return name


@pytest.fixture
def pair(cluster, request):
    """Creates a topic with one partition that has a replica on both brokers."""
    name = "pair-" + re.sub(r"\W+", "-", request.node.name).strip("-")
    cluster.create(name, [[101, 102]])
    return name


@pytest.fixture(params=["ours", "theirs"])
def run(request, cluster, tools):
    """Returns a function that runs a tool of one kind against the cluster. It returns the exit code, and the lines on
    standard output and standard error."""

    def ours(tool, *arguments):
        command = [ROOT / ".venv" / "bin" / "kafkacore", tool, "--bootstrap-server", cluster.addresses[101], *arguments]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, anywhere(done.stdout + done.stderr.removeprefix("kafkacore: ")).splitlines()

    def theirs(tool, *arguments):
        done = tools.attempt(f"kafka-{tool}", "--bootstrap-server", cluster.addresses[101], *arguments)
        return done.exit, anywhere(done.out + done.err).splitlines()

    def anywhere(text):
        """Replaces the paths of log directories in the text, because a broker chooses the directories of new
        partitions."""
        return re.sub(r'"/[^"]*/data(-2)?"', '"any"', text)

    return {"ours": ours, "theirs": theirs}[request.param]


def plan(tmp_path, topic, *replicas, **fields):
    file = tmp_path / "plan.json"
    partitions = [{"topic": topic, "partition": i, "replicas": each} | fields for i, each in enumerate(replicas)]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return file


def assignment(topic, *replicas):
    rows = [
        {"topic": topic, "partition": i, "replicas": each, "log_dirs": ["any"] * len(each)}
        for i, each in enumerate(replicas)
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


def test_reassignment_is_executed_and_verified_alike(cluster, run, topic, tmp_path):
    file = plan(tmp_path, topic, [102], [102])
    executed = run("reassign-partitions", "--execute", "--reassignment-json-file", file, "--throttle", 1_000_000)
    assert executed == (
        0,
        [
            "Current partition replica assignment",
            "",
            assignment(topic, [101], [102]),
            "",
            "Save this to use as the --reassignment-json-file option during rollback",
            VERIFY_LATER,
            "The inter-broker throttle limit was set to 1000000 B/s",
            f"Successfully started partition reassignments for {topic}-0,{topic}-1",
        ],
    )
    cluster.wait(lambda: cluster.state(topic, 0).replicas == (102,), "the plan's end")
    assert run("reassign-partitions", "--list") == (0, ["No partition reassignments found."])
    assert run("reassign-partitions", "--verify", "--reassignment-json-file", file) == (
        0,
        [
            "Status of partition reassignment:",
            f"Reassignment of partition {topic}-0 is completed.",
            f"Reassignment of partition {topic}-1 is completed.",
            "",
            "Clearing broker-level throttles on brokers 101,102",
            f"Clearing topic-level throttles on topic {topic}",
        ],
    )


def test_replica_is_moved_between_directories_alike(cluster, run, topic, tmp_path):
    def holds(directory):
        return Path(directory, f"{topic}-0").exists()

    here, there = sorted(both(cluster.brokers[101]), key=holds, reverse=True)
    assert holds(here)
    file = plan(tmp_path, topic, [101], log_dirs=[there])
    execute = ("--execute", "--reassignment-json-file", file, "--replica-alter-log-dirs-throttle", 1_000_000)
    code, lines = run("reassign-partitions", *execute)
    assert (code, lines[4:]) == (
        0,
        [
            "Save this to use as the --reassignment-json-file option during rollback",
            VERIFY_LATER,
            "The replica-alter-dir throttle limit was set to 1000000 B/s",
            f"Successfully started partition reassignment for {topic}-0",
            f"Successfully started moving log directory to {there} for replica {topic}-0 with broker 101 ",
        ],
    )
    cluster.wait(lambda: holds(there) and not holds(here), "the move's end")
    status = ["Status of partition reassignment:", f"Reassignment of partition {topic}-0 is completed."]
    cleared = [
        "Clearing broker-level throttles on brokers 101,102",
        f"Clearing topic-level throttles on topic {topic}",
    ]
    done = f"Reassignment of replica {topic}-0-101 completed successfully."
    assert run("reassign-partitions", "--verify", "--reassignment-json-file", file) == (0, [*status, done, *cleared])
    cancel = ("--cancel", "--reassignment-json-file", file, "--preserve-throttles")
    inactive = [f"None of the specified partition {each} are active." for each in ("reassignments", "moves")]
    assert run("reassign-partitions", *cancel) == (0, inactive)
    file = plan(tmp_path, topic, [101], log_dirs=[here])
    missed = f"Partition {topic}-0 on broker 101 is not being moved from log dir {there} to {here}."
    assert run("reassign-partitions", "--verify", "--reassignment-json-file", file) == (0, [*status, missed, *cleared])


def test_move_to_a_directory_that_the_broker_lacks_is_refused_alike(run, topic, tmp_path):
    file = plan(tmp_path, topic, [101], log_dirs=["/nowhere"])
    code, lines = run("reassign-partitions", "--execute", "--reassignment-json-file", file)
    assert code == 1
    assert any(f"Failed to alter dir for {topic}-0-101" in line for line in lines), lines


def test_preferred_leader_is_elected_alike(cluster, run, pair):
    cluster.reassign({(pair, 0): [102, 101]})
    cluster.wait(lambda: cluster.state(pair).replicas == (102, 101), "the new order of the replicas")
    election = ("leader-election", "--election-type", "preferred", "--topic", pair, "--partition", 0)
    assert run(*election) == (0, [f"Successfully completed leader election (PREFERRED) for partitions {pair}-0"])
    cluster.wait_leader(pair, 0, 102)
    assert run(*election) == (0, [f"Valid replica already elected for partitions {pair}-0"])


@pytest.mark.parametrize("run", ["ours"], indirect=True)
def test_reassignment_under_way_is_listed_and_cancelled(cluster, run, topic, tmp_path):
    """The broker of the new replica is paused, so the reassignment does not end. The test does not run Kafka's tool
    here, because it would wait until that broker describes its log directories."""
    file = plan(tmp_path, topic, [101, 102], [102])
    cluster.brokers[102].pause()
    try:
        code, lines = run("reassign-partitions", "--execute", "--reassignment-json-file", file)
        assert (code, lines[-1]) == (0, f"Successfully started partition reassignments for {topic}-0,{topic}-1")
        _, lines = run("reassign-partitions", "--list")
        assert lines == ["Current partition reassignments:", f"{topic}-0: replicas: 101,102. adding: 102."]
        code, lines = run("reassign-partitions", "--execute", "--reassignment-json-file", file)
        assert code == 1
        assert lines[-1].startswith("Cannot execute because there is an existing partition assignment.")
        verify = ("--verify", "--reassignment-json-file", file)
        assert f"Reassignment of partition {topic}-0 is still in progress." in run("reassign-partitions", *verify)[1]
        cancel = ("--cancel", "--reassignment-json-file", file, "--preserve-throttles")
        assert run("reassign-partitions", *cancel) == (
            0,
            [
                f"Successfully cancelled partition reassignment for: {topic}-0",
                "None of the specified partition moves are active.",
            ],
        )
    finally:
        cluster.brokers[102].resume()
    cluster.wait_in_sync(topic, count=2)
    _, lines = run("reassign-partitions", *verify)
    missed = f"There is no active reassignment of partition {topic}-0, but replica set is 101 rather than 101,102."
    assert missed in lines


def test_plan_is_generated_alike(run, topic, tmp_path):
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    code, lines = run("reassign-partitions", "--generate", "--topics-to-move-json-file", file, "--broker-list", "102")
    assert code == 0
    heads = [lines[0], lines[2], lines[3]]
    assert heads == ["Current partition replica assignment", "", "Proposed partition reassignment configuration"]
    assert lines[1] == assignment(topic, [101], [102])
    assert lines[4] == assignment(topic, [102], [102])


def test_election_of_a_partition_that_does_not_exist_is_refused_alike(run):
    code, lines = run("leader-election", "--election-type", "PREFERRED", "--topic", "nowhere", "--partition", 3)
    assert code == 1
    assert lines[0].startswith("Error completing leader election (PREFERRED) for partition: nowhere-3: ")


def test_live_replicas_agree_under_load(cluster, pair):
    command = [
        ROOT / ".venv" / "bin" / "kafkacore",
        "replica-verification",
        "--bootstrap-server",
        cluster.addresses[101],
    ]
    with Writes(cluster, [(pair, 0)]) as writes:
        found = subprocess.run(
            [*map(str, command), "--topics-include", re.escape(pair)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, ""), found.stdout
    last = found.stdout.splitlines()[-1]
    assert re.search(rf"max lag is \d+ for partition {re.escape(pair)}-0 at offset \d+ among 1 partitions", last)
    cluster.assert_whole(writes)
