"""Apache Kafka's tools and ours, used with a cluster of three controllers and three brokers of ours.

Each tool sends its requests to a broker, to the active controller, and to another controller. Apache Kafka's tool and
ours must print the same.
"""

import re
import shutil
import subprocess
import time
from functools import partial

import pytest

from brokers import APACHE, java
from kafkacore.inspection.metadata_shell import files
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.ports import free_ports
from processes import PEERS, ROOT, need, wait_until
from quorums import LIMIT_S, OURS, Member, MixedQuorum

RELEASE = APACHE["apache-4.3"]
LATER = 4
# With these settings, there is a snapshot after every few records, and the log always has two segments or more.
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.log.segment.bytes": str(8 << 20),
    "metadata.max.idle.interval.ms": "0",
    # The log begins at the second newest snapshot, so a new observer has to load a snapshot.
    "metadata.max.retention.bytes": "6000",
}


class Cluster(MixedQuorum):
    """Three controllers as dynamic voters, a fourth controller that can join, and three brokers."""

    def __init__(self, path, tools):
        super().__init__(
            path, dict.fromkeys((1, 2, 3), OURS), tools, dynamic=True, later={LATER: OURS}, overrides=SETTINGS
        )
        self.more = {}
        for node_id, port in zip((101, 102), free_ports(2), strict=True):
            settings = self.broker_settings() | {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
            self.more[f"127.0.0.1:{port}"] = Member(self.path / str(node_id), node_id, OURS, settings)

    def start_all(self):
        self.format()
        for member in self.more.values():
            member.format(self.tools, "--no-initial-controllers")
        self.start()
        for address, member in self.more.items():
            member.start(address)
        self.start_later(LATER)
        return self

    def close(self):
        for member in self.more.values():
            if member.alive():
                member.kill()
        super().close()

    def endpoint(self, kind):
        if kind == "broker":
            return "--bootstrap-server", self.bootstrap
        leader = self.leader()
        if kind == "active":
            return "--bootstrap-controller", self.addresses[leader]
        return "--bootstrap-controller", self.addresses[next(each for each in self.first_voters if each != leader)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, tools_of_either):
    made = Cluster(tmp_path_factory.mktemp("cluster"), tools_of_either)
    try:
        made.start_all()
        admin = tools_of_either["apache-4.3"]
        create = ("kafka-topics", "--bootstrap-server", made.bootstrap, "--create")
        wait_until(
            lambda: admin.attempt(*create, "--topic", "first", "--partitions", 6, "--if-not-exists").exit == 0,
            LIMIT_S, "a topic",
        )  # fmt: skip
        for number in range(40):
            made.tools["apache-4.3"].run(*create, "--topic", f"topic.{number}", "--partitions", 3)
        yield made
    finally:
        made.close()


@pytest.fixture(params=["broker", "active", "standby"])
def endpoint(cluster, request):
    return cluster.endpoint(request.param)


def ours(command, *arguments):
    program = [ROOT / ".venv" / "bin" / "kafkacore", command, *arguments]
    return subprocess.run([str(word) for word in program], capture_output=True, text=True, timeout=60, check=False)


def timeless(text):
    """Returns the text without the values that differ between two calls to a running cluster. Lines about replicas are
    sorted."""
    text = re.sub(r"\d+ ms ago *|\b\d{13} *", "TIME", text)
    text = re.sub(r"(HighWatermark: +|MaxFollowerLag: +|MaxFollowerLagTimeMs: +|Epoch: )-?\d+", r"\1N", text)
    text = re.sub(r"([\w-]{22}\t)\d+ *\t\d+ *", r"\1N\tN", text)
    return sorted(" ".join(line.split()) for line in text.splitlines())


# --- kafka-metadata-quorum -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [("--status",), ("--replication",), ("--replication", "--human-readable")])
def test_quorum_is_described_alike(cluster, tools, endpoint, form):
    theirs = tools.run("kafka-metadata-quorum", *endpoint, "describe", *form)
    found = ours("metadata-quorum", *endpoint, "describe", *form)
    assert (found.returncode, found.stderr) == (0, "")
    assert timeless(found.stdout) == timeless(theirs.out)
    if form == ("--replication",):
        assert [line.split()[-1] for line in theirs.lines[1:]].count("Follower") == 2
        assert {int(line.split()[0]) for line in theirs.lines[1:]} == {1, 2, 3, LATER, 100, 101, 102}


@pytest.mark.parametrize("tool", ["theirs", "ours"])
def test_controller_is_added_and_removed(cluster, tools, endpoint, tool):
    directory = str(meta_directory(cluster.controllers[LATER]))

    def run(*arguments):
        if tool == "ours":
            found = ours("metadata-quorum", *endpoint, *arguments)
            assert (found.returncode, found.stderr) == (0, ""), found
            return found.stdout
        return tools.run("kafka-metadata-quorum", *endpoint, *arguments).out

    out = run("--command-config", cluster.controllers[LATER].properties, "add-controller")
    assert f"Added controller {LATER} with directory id {directory}" in out
    assert cluster.voters()[LATER] == Uuid.parse(directory)
    removal = ("remove-controller", "--controller-id", LATER, "--controller-directory-id", directory)
    assert (
        run(*removal, "--dry-run") == f"DRY RUN of removing  KRaft controller {LATER} with directory id {directory}\n"
    )
    out = run(*removal)
    assert out == f"Removed  KRaft controller {LATER} with directory id {directory}\n"
    assert set(cluster.voters()) == {1, 2, 3}


def meta_directory(member):
    properties = (member.data / "meta.properties").read_text()
    return re.search(r"directory\.id=(\S+)", properties)[1]


def test_wrong_change_of_voters_is_refused_alike(cluster, tools, endpoint):
    directory = meta_directory(cluster.controllers[LATER])
    for removal in (
        ("remove-controller", "--controller-id", 77, "--controller-directory-id", directory),
        ("remove-controller", "--controller-id", 1, "--controller-directory-id", directory),
    ):
        theirs = tools.attempt("kafka-metadata-quorum", *endpoint, *removal)
        found = ours("metadata-quorum", *endpoint, *removal)
        assert (found.returncode, theirs.exit) == (1, 1)
        said = found.stderr.removeprefix("kafkacore: ").strip()
        assert said, found
        assert said in theirs.err + theirs.out


# --- kafka-features, kafka-cluster -----------------------------------------------------------------------------------


def test_features_are_described_alike(tools, endpoint):
    theirs = tools.run("kafka-features", *endpoint, "describe")
    found = ours("features", *endpoint, "describe")
    assert (found.returncode, found.stderr) == (0, "")
    assert timeless(found.stdout) == timeless(theirs.out)
    assert "kraft.version" in theirs.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("upgrade", "--feature", "metadata.version=99"),
        ("upgrade", "--feature", "share.version=1", "--dry-run"),
        ("downgrade", "--feature", "metadata.version=24", "--dry-run"),
        ("disable", "--feature", "group.version", "--dry-run"),
    ],
    ids=" ".join,
)
def test_changes_of_features_are_answered_alike(tools, endpoint, arguments):
    theirs = tools.attempt("kafka-features", *endpoint, *arguments)
    found = ours("features", *endpoint, *arguments)
    assert (found.stdout, found.returncode) == (theirs.out, theirs.exit)
    assert found.stderr.removeprefix("kafkacore: ").strip() == theirs.err.strip()


@pytest.mark.parametrize("command", ["cluster-id", "list-endpoints"])
def test_cluster_is_shown_alike(tools, endpoint, command):
    theirs = tools.run("kafka-cluster", command, *endpoint)
    found = ours("cluster", command, *endpoint)
    assert (found.returncode, found.stderr) == (0, "")
    assert timeless(found.stdout) == timeless(theirs.out)


def test_broker_that_is_stopped_is_unregistered(cluster, tools, endpoint):
    address, member = list(cluster.more.items())[-1]
    member.kill()
    listed = ("list-endpoints", "--include-fenced-brokers", "--bootstrap-server", cluster.bootstrap)
    try:
        tools.run("kafka-cluster", "unregister", "--id", member.node_id, *endpoint)
        wait_until(
            lambda: f"{address.split(':')[1]}" not in tools.run("kafka-cluster", *listed).out, LIMIT_S, "it is gone"
        )
    finally:
        member.start(address)
    wait_until(lambda: f"{address.split(':')[1]}" in tools.run("kafka-cluster", *listed).out, LIMIT_S, "it is back")


# --- kafka-configs, kafka-topics -------------------------------------------------------------------------------------


def test_configs_are_altered_and_described(cluster, tools, endpoint):
    def run(*arguments):
        return tools.run("kafka-configs", *endpoint, *arguments).out

    topic = ("--entity-type", "topics", "--entity-name", "first")
    value = 1_000_000 + time.monotonic_ns() % 1_000_000
    assert "Completed updating" in run("--alter", *topic, "--add-config", f"retention.ms={value}")
    everyone = ("--entity-type", "brokers", "--entity-default")
    assert "Completed updating" in run("--alter", *everyone, "--add-config", f"log.cleaner.backoff.ms={value}")
    wait_until(lambda: f"log.cleaner.backoff.ms={value}" in run("--describe", *everyone), LIMIT_S, "the default")
    shown = ("kafka-configs", "--bootstrap-server", cluster.bootstrap, "--describe", *topic)
    wait_until(lambda: f"retention.ms={value}" in tools.run(*shown).out, LIMIT_S, "the topic's setting")
    assert "Completed updating" in run("--alter", *topic, "--delete-config", "retention.ms")


def test_settings_of_a_controller_are_described(cluster, tools):
    for node_id in cluster.first_voters:
        where = ("--bootstrap-controller", cluster.addresses[node_id])
        described = ("--describe", "--all", "--entity-type", "brokers", "--entity-name", node_id)
        out = tools.run("kafka-configs", *where, *described).out
        assert f"node.id={node_id} " in out
        assert "process.roles=controller " in out


def run_tool(tools, *arguments):
    return tools.run(*arguments).out


def test_topics_are_created_altered_and_deleted_at_each_broker(cluster, tools):
    for number, address in enumerate([cluster.bootstrap, *cluster.more]):
        run = partial(run_tool, tools, "kafka-topics", "--bootstrap-server", address)
        name = f"own-{number}"
        assert f"Created topic {name}." in run("--create", "--topic", name, "--partitions", 2)
        # The controller has created the topic, and this broker learns about it a moment later.
        wait_until(lambda run=run, name=name: name in run("--list").split(), LIMIT_S, "the topic at this broker")
        run("--alter", "--topic", name, "--partitions", 5)
        wait_until(
            lambda run=run, name=name: "PartitionCount: 5" in run("--describe", "--topic", name),
            LIMIT_S,
            "5 partitions",
        )
        run("--delete", "--topic", name)
        wait_until(lambda run=run, name=name: name not in run("--list").split(), LIMIT_S, "the topic's deletion")
        assert "first" in run("--list").split()


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def copied(cluster, tmp_path):
    """Returns a copy of the active controller's log directory. The controller keeps running, so the copied log may end
    inside a batch."""
    member = cluster.controllers[cluster.leader()]
    wait_until(lambda: list(member.data.glob("*/*[1-9]-*.checkpoint")), LIMIT_S, "a snapshot")
    shutil.copytree(member.data, tmp_path / "data", ignore=shutil.ignore_patterns("*.part", ".lock"))
    return tmp_path / "data"


def test_live_quorum_is_shown_from_its_snapshot_on(cluster, copied):
    oldest = min(copied.glob("*/*[1-9]-*.checkpoint"))
    live = ("metadata-shell", "--bootstrap-controller", cluster.endpoint("standby")[1])
    found = ours(*live, "find", "/image/topics/byName")
    assert (found.returncode, found.stderr) == (0, "")
    shown = ours("metadata-shell", "-d", copied, "find", "/image/topics/byName").stdout
    assert "/image/topics/byName/topic.39/2" in shown.splitlines()
    assert set(shown.splitlines()) == set(found.stdout.splitlines())
    refused = ours(*live, "--at-offset", 3, "ls")
    assert refused.returncode == 1
    assert "the quorum's oldest state is at offset " in refused.stderr
    assert int(oldest.name.split("-")[0]) > 4


def test_kafkas_shell_and_ours_show_the_same_directory(copied):
    need(any((PEERS / f"kafka-{RELEASE}").glob("kafka-shell-*.jar")), "Apache Kafka's metadata shell: make peers")
    snapshot = max(copied.glob("*/*[1-9]-*.checkpoint"))
    program = [*java(RELEASE, "256m"), "org.apache.kafka.shell.MetadataShell", "--snapshot", snapshot, "tree", "/image"]

    def theirs():
        shown = subprocess.run(list(map(str, program)), capture_output=True, text=True, timeout=60, check=True)
        return without_place(shown.stdout)

    found = ours("metadata-shell", "--snapshot", snapshot, "tree", "/image")
    assert (found.returncode, found.stderr) == (0, "")
    shown = without_place(found.stdout)
    assert any(theirs() == shown for _ in range(10)), "Kafka's shell never showed the whole state"
    end = int(snapshot.name.split("-")[0])
    assert files.load(str(copied), end - 1)[0].offset == end - 1
    assert ours("metadata-shell", "-d", copied, "--at-offset", end - 1, "tree", "/image").stdout == found.stdout
    assert ours("metadata-shell", "-d", copied, "ls", "/image/cluster/controllers").stdout.split() == [
        "1",
        "2",
        "3",
        "4",
    ]


def without_place(text):
    """Returns the text without one line that always differs. In it, Kafka's shell shows the position of the last record
    in the snapshot file, and ours shows the offset of the state."""
    return re.sub(r"offset \d+, epoch (\d+), time \S+", r"\1", text)


def test_dump_of_the_metadata_log_equals_the_dump_of_kafkas_tool(copied, tools):
    paths = sorted([*copied.glob("*/*.log"), *copied.glob("*/*.checkpoint")])
    assert len(paths) >= 2
    for path in paths:
        options = ("--cluster-metadata-decoder", "--files", path)
        theirs = tools.run("kafka-dump-log", *options)
        found = ours("dump-log", *options)
        assert found.stdout == theirs.out
        assert found.returncode == 0
    voters = ours("dump-log", "--cluster-metadata-decoder", paths[-1]).stdout
    assert '"voterId":3' in voters + theirs.out


def test_storage_info_finds_nothing_wrong_with_a_voter_of_three(cluster, copied, tmp_path):
    member = cluster.controllers[cluster.leader()]
    properties = tmp_path / "server.properties"
    properties.write_text(member.properties.read_text().replace(str(member.data), str(copied)))
    found = ours("storage", "info", "-c", properties)
    assert (found.returncode, found.stderr) == (0, ""), found.stdout
    assert str(copied) in found.stdout
