"""`kafkacore reassign-partitions`, `leader-election` and `replica-verification` compared with Apache Kafka's tools.

The cluster has one controller of ours and two brokers of Apache Kafka with two log directories each.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from asking import ask
from brokers import java
from kafkacore._fast.base.crc32c import checksum
from kafkacore.protocol.messages import DeleteRecordsRequest
from processes import ROOT, Child, wait_until
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


def test_plan_for_a_broker_that_does_not_exist_is_refused(cluster, topic, tmp_path):
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"topics": [{"topic": topic}]}))
    command = [ROOT / ".venv" / "bin" / "kafkacore", "reassign-partitions", "--bootstrap-server"]
    command += [cluster.addresses[101], "--generate", "--topics-to-move-json-file", file, "--broker-list", "102,9"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "kafkacore: Unknown broker id 9\n")


def test_election_of_a_partition_that_does_not_exist_is_refused_alike(run):
    code, lines = run("leader-election", "--election-type", "PREFERRED", "--topic", "nowhere", "--partition", 3)
    assert code == 1
    assert lines[0].startswith("Error completing leader election (PREFERRED) for partition: nowhere-3: ")


def test_live_replicas_agree_under_load(cluster, pair):
    with Writes(cluster, [(pair, 0)]) as writes:
        code, lines = verify(cluster, pair)
    assert code == 0
    assert re.fullmatch(
        rf"max lag is \d+ for partition {re.escape(pair)}-0 at offset \d+ among 1 partitions", lines[-1]
    )
    cluster.assert_whole(writes)


def verify(cluster, topics, *options):
    """Runs `kafkacore replica-verification`. Returns its exit code, and its lines without their times."""
    command = [ROOT / ".venv" / "bin" / "kafkacore", "replica-verification", "--bootstrap-server"]
    command += [cluster.addresses[101], "--topics-include", topics, *options]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.returncode, without_times(done.stdout)


def without_times(text):
    return [line.split(": ", 1)[1] for line in text.splitlines() if re.match(r"\d{4}-\d\d-\d\d .*: ", line)]


def verified_by_apache_kafka(cluster, tools, topics, path, wanted):
    """Runs kafka-replica-verification.sh until it has printed the wanted line. Returns all its lines."""
    command = [*java(tools.release, "128m"), tools.main("kafka-replica-verification")]
    command += ["--broker-list", cluster.bootstrap, "--topics-include", topics, "--report-interval-ms", 100]
    command += ["--time", -2]  # from the first record; by default, this tool begins at the last one
    tool = Child(["setpriv", "--pdeathsig", "KILL", "--", *command], path / "verification.log")
    try:
        wait_until(
            lambda: [line for line in without_times(tool.log.read_text()) if wanted in line], 60, wanted,
            lambda: tool.log.read_text()[-2000:],
        )  # fmt: skip
        return without_times(tool.log.read_text())
    finally:
        tool.kill()


def write(cluster, topic, count):
    """Writes `count` batches of one record to partition 0."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 1})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0


def damage(file, offset):
    """Changes the value of the only record of a batch, and corrects the checksum of the batch."""
    data, at = bytearray(file.read_bytes()), 0
    while int.from_bytes(data[at : at + 8], "big") != offset:
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    data[end - 2] ^= 1  # the last byte of the value; the record ends with its number of headers
    data[at + 17 : at + 21] = checksum(bytes(data[at + 21 : end])).to_bytes(4, "big")
    file.write_bytes(data)


def test_replicas_are_verified_alike(cluster, tools_of_either, pair, tmp_path):
    tools = tools_of_either["apache-3.9"]  # 4.x has no such tool
    alone = f"alone-{pair}"
    cluster.create(alone, [[101]])
    topics = f"{pair}|{alone}"
    for topic in (pair, alone):
        write(cluster, topic, 20)
    theirs = verified_by_apache_kafka(cluster, tools, topics, tmp_path, "max lag is 0")
    code, ours = verify(cluster, topics)
    verdict = r"max lag is 0 for partition \S+ at offset 20 among 2 partitions"
    assert code == 0
    assert ours[0] == theirs[0] == "verification process is started"
    for lines in (ours, theirs):
        assert re.fullmatch(verdict, lines[-1]), lines
    member = cluster.brokers[102]
    member.stop()
    [file] = member.directory.glob(f"*/{pair}-0/*.log")
    damage(file, 7)
    member.start()
    cluster.wait_in_sync(pair)
    theirs = verified_by_apache_kafka(cluster, tools, pair, tmp_path, "unmatched checksum")
    code, ours = verify(cluster, pair)
    assert code == 1
    assert ours[1] == f"partition {pair}-0: the batch at offset 7 differs between replica 101 and replica 102"
    [found] = [line for line in theirs if "unmatched" in line]
    assert found.startswith(f"partition {pair}-0 has unmatched checksum at offset 7; replica ")


def test_replicas_are_verified_when_their_first_records_were_deleted(cluster, pair):
    write(cluster, pair, 20)
    deleted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=12)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name=pair, partitions=[deleted])
    answer = ask(cluster.addresses[101], DeleteRecordsRequest(topics=[topic], timeout_ms=20_000), 2)
    assert answer.topics[0].partitions[0].error_code == 0
    code, lines = verify(cluster, pair)
    assert (code, lines[-1]) == (0, f"max lag is 0 for partition {pair}-0 at offset 20 among 1 partitions")


def test_verification_fails_when_no_topic_is_included(cluster):
    command = [ROOT / ".venv" / "bin" / "kafkacore", "replica-verification", "--bootstrap-server"]
    command += [cluster.addresses[101], "--topics-include", "nowhere"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "No topics found" in done.stderr) == (1, True)
