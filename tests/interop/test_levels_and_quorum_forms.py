"""One directory in turns: Apache Kafka writes what only it acts on, we start on it, take a snapshot, and give it back.

At level 21 with static voters (3.9, and back to 3.9 and to 4.3), and at level 30 with voters in the log (4.3).
"""

import json
import shutil

import pytest

from brokers import APACHE, ApacheKafka
from checkpoints import same_but_for_time
from kafka_tools import KafkaTools
from kafkacore._fast.batch import Batches
from kafkacore._fast.uuid import Uuid
from kafkacore.metadata.records import decode_batch
from kafkacore.metadata.snapshot import image_of
from kafkacore.storage import quorum_state
from kafkacore.storage.names import parse_checkpoint_name
from kafkacore.tools.main import main
from processes import PEERS, ROOT, Child, need, wait_until

CLUSTER_ID = "kafkacorePeerAAAAAAAAA"
METADATA = "__cluster_metadata-0"
NEEDED = "make peers: Apache Kafka's jars, Java 17 and Maven"
START_TIMEOUT_S = 30
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
# After every batch, and none but the last is kept: the log begins at it.
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1", "metadata.max.retention.bytes": "1"}
# Who comes after a kill waits until the broker that was killed counts as gone.
BRIEF_SESSIONS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}


@pytest.fixture(scope="module")
def tools():
    """4.3's, which ask both releases."""
    need(all((PEERS / f"kafka-{release}" / ".complete").exists() for release in APACHE.values()), NEEDED)
    made = KafkaTools("apache-4.3")
    yield made
    made.close()


@pytest.fixture
def directory(tmp_path):
    """`directory(release, quorum, *options)` formats one; who has it at the end of a test is stopped."""
    made = []

    def format_by(*arguments, **overrides):
        made.append(Directory(tmp_path, *arguments, **overrides))
        return made[0]

    yield format_by
    for each in made:
        each.stop()


class Directory(ApacheKafka):
    """What changes hands. `options` are kafka-storage's, `quorum` the form's key of server.properties."""

    child = None

    def __init__(self, directory, name, quorum, *options, **overrides):
        self.quorum, self.options = quorum, options
        super().__init__(name, directory, overrides)

    def settings(self, overrides):
        given = super().settings(overrides | AUTHORIZER | BRIEF_SESSIONS)
        voters = given.pop("controller.quorum.voters")
        if self.quorum == "controller.quorum.voters":
            return given | {self.quorum: voters}
        return given | {self.quorum: self.controller}

    def java(self, tool, *arguments):
        super().java(tool, *arguments, *self.options)

    def start(self):
        """Not before somebody is asked to."""

    def give_to(self, name):
        self.name, self.release = name, APACHE[name]
        super().start()

    def give_to_us(self, **overrides):
        """Without access control, which we would not pretend to have."""
        asked = {"authorizer.class.name": "", **SNAPSHOTS, **overrides}
        command = [ROOT / ".venv" / "bin" / "kafkacore", "start", self.properties]
        self.child = Child([*command, *(f"--override={key}={value}" for key, value in asked.items())], self.log)
        self.child.wait_ready(self.serves, START_TIMEOUT_S, "kafkacore ready")

    def stop(self):
        return self.child and super().stop()

    @property
    def metadata_log(self):
        return self.log_dir / METADATA

    def snapshots(self):
        found = (parse_checkpoint_name(path.name) for path in self.metadata_log.iterdir())
        return sorted(each for each in found if each)

    def last_snapshot(self):
        """The image that the newest snapshot makes."""
        name = "{:020d}-{:010d}.checkpoint".format(*self.snapshots()[-1])
        data = (self.metadata_log / name).read_bytes()
        records = [each for batch in Batches(data) if not batch.is_control for each in decode_batch(batch)]
        return image_of(records, 0, 0, 0)

    def quorum_state_version(self):
        return json.loads((self.metadata_log / quorum_state.NAME).read_bytes())["data_version"]


def write_what_only_apache_kafka_acts_on(tools, bootstrap_server):
    def configs(change, *entity):
        tools.run("kafka-configs", "--bootstrap-server", bootstrap_server, "--alter", "--add-config", change, *entity)

    alice = ("--entity-type", "users", "--entity-name", "alice")
    configs("SCRAM-SHA-256=[iterations=8192,password=secret]", *alice)
    configs("SCRAM-SHA-512=[password=more]", *alice)
    app = ("--entity-type", "clients", "--entity-name", "app")
    configs("producer_byte_rate=1024,request_percentage=12.5", *alice, *app)
    configs("consumer_byte_rate=2048", "--entity-type", "clients", "--entity-default")
    configs("connection_creation_rate=5", "--entity-type", "ips", "--entity-name", "10.0.0.1")
    configs("metrics=[org.apache.kafka.],interval.ms=10000", "--entity-type", "client-metrics", "--entity-name", "seen")
    acls = ("kafka-acls", "--bootstrap-server", bootstrap_server, "--add", "--force")
    tools.run(*acls, "--allow-principal", "User:alice", "--operation", "Read", "--topic", "theirs")
    tools.run(*acls, "--deny-principal", "User:bob", "--operation", "All", "--topic", "the", "--resource-pattern-type",
              "prefixed")  # fmt: skip
    tools.run("kafka-topics", "--bootstrap-server", bootstrap_server, "--create", "--topic", "theirs",
              "--config", "retention.ms=123456")  # fmt: skip


def what_apache_kafka_shows(tools, bootstrap_server):
    """Every line that its tools print of users, quotas, ACLs, topics and features."""
    asked = (
        ("kafka-configs", "--describe", "--entity-type", "users"),
        ("kafka-configs", "--describe", "--entity-type", "clients"),
        ("kafka-configs", "--describe", "--entity-type", "ips"),
        ("kafka-configs", "--describe", "--entity-type", "users", "--entity-type", "clients"),
        ("kafka-configs", "--describe", "--entity-type", "client-metrics", "--entity-name", "seen"),
        ("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "theirs"),
        ("kafka-acls", "--list"),
    )
    return {
        " ".join(command): sorted(map(facts, tools.run(*command, "--bootstrap-server", bootstrap_server).lines))
        for command in asked
    }


def facts(line):
    """Without what is not the directory's matter: the synonyms of a key, and in which order credentials come."""
    head, told, credentials = line.partition(" synonyms=")[0].partition(" are ")
    return (head, *sorted(credentials.split(", "))) if told else head


def levels(tools, bootstrap_server):
    """Finalised levels by feature."""
    lines = tools.run("kafka-features", "--bootstrap-server", bootstrap_server, "describe").lines
    words = (line.replace(":", " ").split() for line in lines)
    return {each[1]: each[each.index("FinalizedVersionLevel") + 1] for each in words if "FinalizedVersionLevel" in each}


def topics(tools, bootstrap_server):
    return set(tools.run("kafka-topics", "--bootstrap-server", bootstrap_server, "--list").lines)


def produce(tools, bootstrap_server, topic):
    tools.run("kafka-console-producer", "--bootstrap-server", bootstrap_server, "--topic", topic, stdin="one\n")


def produced(tools, bootstrap_server, topic):
    return tools.run("kafka-get-offsets", "--bootstrap-server", bootstrap_server, "--topic", topic).lines


def producer_ids(directory):
    """Of every batch in the topics, in no order: the console producer is an idempotent one."""
    segments = directory.log_dir.glob("*rs-0/*.log")
    return [batch.producer_id for path in segments for batch in Batches(path.read_bytes())]


def go_on_with_us(tools, directory, topic):
    """A start, a topic, a record in each of both, and a snapshot."""
    before = directory.snapshots()
    directory.give_to_us()
    tools.run("kafka-topics", "--bootstrap-server", directory.bootstrap, "--create", "--topic", topic)
    produce(tools, directory.bootstrap, topic)
    produce(tools, directory.bootstrap, "theirs")
    wait_until(
        lambda: directory.snapshots()[-1:] > before and directory.last_snapshot().topic(topic), what="a snapshot"
    )
    assert directory.stop() == 0


def test_level_21_and_static_voters_from_3_9_to_us_and_back_to_3_9_and_4_3(tools, directory):
    directory = directory("apache-3.9", "controller.quorum.voters")
    directory.give_to("apache-3.9")
    write_what_only_apache_kafka_acts_on(tools, directory.bootstrap)
    produce(tools, directory.bootstrap, "theirs")
    shown = what_apache_kafka_shows(tools, directory.bootstrap)
    directory.kill()

    go_on_with_us(tools, directory, "ours")
    assert directory.stop() == 0
    assert directory.quorum_state_version() == 0
    kept = {kind for kind, *_ in directory.last_snapshot().kept}
    assert kept == {
        "ZkMigrationStateRecord", "ClientQuotaRecord", "AccessControlEntryRecord", "UserScramCredentialRecord",
    }  # fmt: skip

    for name in ("apache-3.9", "apache-4.3"):
        directory.give_to(name)
        assert what_apache_kafka_shows(tools, directory.bootstrap) == shown
        assert levels(tools, directory.bootstrap)["metadata.version"] == "3.9-IV0"
        assert topics(tools, directory.bootstrap) == {"ours", "theirs"}
        produce(tools, directory.bootstrap, "ours")
        assert produced(tools, directory.bootstrap, "theirs") == ["theirs:0:2"]
        if name == "apache-4.3":
            change = ("upgrade", "--feature", "kraft.version=1")
            tools.run("kafka-features", "--bootstrap-server", directory.bootstrap, *change)
        directory.stop()
    # The voters are records now, whatever server.properties says.
    directory.give_to_us()
    assert directory.stop() == 0
    assert directory.quorum_state_version() == 1
    # Theirs, ours twice, theirs of either release: nobody gave an id that somebody had.
    ids = producer_ids(directory)
    assert len(ids) == len(set(ids)) == 5 and min(ids) >= 0


def test_level_30_and_voters_in_the_log_from_4_3_to_us_and_back(tools, directory):
    elr = ("--feature", "eligible.leader.replicas.version=0")
    directory = directory("apache-4.3", "controller.quorum.bootstrap.servers", "--standalone", *elr, **SNAPSHOTS)
    # Nobody started on it yet: the voter is known by its directory id.
    directory.give_to_us()
    directory.kill()
    assert directory.quorum_state_version() == 1

    directory.give_to("apache-4.3")
    write_what_only_apache_kafka_acts_on(tools, directory.bootstrap)
    tools.run("kafka-features", "--bootstrap-server", directory.bootstrap, "upgrade",
              "--feature", "eligible.leader.replicas.version=1")  # fmt: skip
    produce(tools, directory.bootstrap, "theirs")
    shown, finalized = what_apache_kafka_shows(tools, directory.bootstrap), levels(tools, directory.bootstrap)
    directory.stop()
    assert finalized["eligible.leader.replicas.version"] == "1"
    assert finalized["share.version"] == finalized["kraft.version"] == "1"

    go_on_with_us(tools, directory, "ours")
    directory.kill()
    assert directory.quorum_state_version() == 1
    assert directory.last_snapshot().features["share.version"] == 1

    directory.give_to("apache-4.3")
    assert what_apache_kafka_shows(tools, directory.bootstrap) == shown
    assert levels(tools, directory.bootstrap) == finalized
    assert topics(tools, directory.bootstrap) == {"ours", "theirs"}
    produce(tools, directory.bootstrap, "theirs")
    assert produced(tools, directory.bootstrap, "theirs") == ["theirs:0:3"]
    directory.kill()
    ids = producer_ids(directory)
    assert len(ids) == len(set(ids)) == 4 and min(ids) >= 0


@pytest.mark.parametrize(
    ("name", "quorum", "options", "version"),
    [
        ("apache-3.9", "controller.quorum.bootstrap.servers", ("--standalone",), 1),
        ("apache-4.3", "controller.quorum.voters", (), 0),
    ],
    ids=["3.9-dynamic", "4.3-static"],
)
def test_the_other_forms_of_either_release_there_and_back(tools, directory, name, quorum, options, version):
    directory = directory(name, quorum, *options)
    directory.give_to_us()
    tools.run("kafka-topics", "--bootstrap-server", directory.bootstrap, "--create", "--topic", "ours")
    produce(tools, directory.bootstrap, "ours")
    directory.kill()
    directory.give_to(name)
    finalized = levels(tools, directory.bootstrap)
    produce(tools, directory.bootstrap, "ours")
    assert produced(tools, directory.bootstrap, "ours") == ["ours:0:2"]
    directory.stop()
    directory.give_to_us()
    # 3.9 does not know of features that came later, and shows none.
    assert finalized.items() <= levels(tools, directory.bootstrap).items()
    produce(tools, directory.bootstrap, "ours")
    assert produced(tools, directory.bootstrap, "ours") == ["ours:0:3"]
    assert directory.stop() == 0
    assert directory.quorum_state_version() == version
    ids = producer_ids(directory)
    assert len(ids) == len(set(ids)) == 3 and min(ids) >= 0


DIRECTORY_IDS = {node_id: str(Uuid(bytes([node_id]) * 16)) for node_id in (1, 2, 3)}
USERS = (
    "--add-scram", 'SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]',
    "--add-scram", 'SCRAM-SHA-256=[name="bob",salt=N3E=,password=a secret]',
)  # fmt: skip
VOTERS = {node_id: f"{node_id}@host{node_id}:9093:{DIRECTORY_IDS[node_id]}" for node_id in DIRECTORY_IDS}


@pytest.mark.parametrize(
    "options",
    [
        ("--initial-controllers", ",".join(VOTERS.values())),
        ("--initial-controllers", f"{VOTERS[2]},{VOTERS[3]}"),
        ("--no-initial-controllers",),
        ("--release-version", "3.9", "--no-initial-controllers", "--feature", "kraft.version=1"),
        (*USERS, "--initial-controllers", VOTERS[1]),
    ],
    ids=["voter", "not-a-voter", "no-voters", "3.9", "users"],
)
def test_a_quorum_of_several_is_formatted_as_4_3_does(tools, tmp_path, capsys, options):
    all_features = [f"{name}.version={level}" for name, level in
                    (("transaction", 2), ("group", 1), ("share", 1), ("streams", 1))]  # fmt: skip
    if "3.9" in options:
        all_features = []
    said, files = {}, {}
    for maker in ("theirs", "ours"):
        directory = tmp_path / "data"
        path = tmp_path / "server.properties"
        path.write_text(
            "process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://localhost:9093\n"
            f"controller.listener.names=CONTROLLER\nlog.dirs={directory}\n"
            "controller.quorum.bootstrap.servers=localhost:9093\n"
        )
        asked = ["format", "-c", str(path), "-t", CLUSTER_ID, *options]
        if maker == "theirs":
            said[maker] = tools.run("kafka-storage", *asked).out
        else:
            assert main(["storage", *asked, *(word for each in all_features for word in ("--feature", each))]) == 0
            said[maker] = capsys.readouterr().out
        files[maker] = {
            str(each.relative_to(directory)): each.read_bytes() for each in directory.rglob("*") if each.is_file()
        }
        shutil.rmtree(directory)
    assert said["ours"] in said["theirs"]
    ours, theirs = files["ours"], files["theirs"]
    assert ours.keys() == theirs.keys()
    for name in ours:
        if name.endswith(".checkpoint"):
            assert same_but_for_time(ours[name], theirs[name])
    if VOTERS[1] in options[-1]:
        for made in (ours, theirs):
            assert f"directory.id={DIRECTORY_IDS[1]}" in made["meta.properties"].decode()
