"""`kafkacore storage format` writes the same files as Apache Kafka's kafka-storage.sh. In test_handovers.py, Apache
Kafka and our node start with each other's files.
"""

import shutil

import pytest

from brokers import APACHE
from checkpoints import same_but_for_time
from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.record.batch import Batches
from kafkacore.config import BrokerConfig
from kafkacore.config.addresses import Address
from kafkacore.inspection.codecs import describe_codecs
from kafkacore.protocol.features import default_levels, parse_metadata_version
from kafkacore.protocol.messages import VotersRecord
from kafkacore.storage import bootstrap, meta_properties
from kafkacore.storage.directories import open_directories
from kafkacore.tools.main import main

CLUSTER_ID = "kafkacorePeerAAAAAAAAA"
CHECKPOINT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


@pytest.fixture(params=APACHE)
def release(request):
    return request.param


@pytest.fixture
def kafka_storage(tools_of_either):
    """Returns a function that runs Apache Kafka's tool: `kafka_storage(release, "format", ...)` returns the output."""
    return lambda release, *arguments: tools_of_either[release].run("kafka-storage", *arguments).out


def properties(path, directory, *, dynamic):
    quorum = (
        "controller.quorum.bootstrap.servers=localhost:9093" if dynamic else "controller.quorum.voters=1@localhost:9093"
    )
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={directory}/a,{directory}/b\n{quorum}\n"
    )
    return str(path)


def test_first_snapshots_equal_the_snapshots_of_apache_kafka(kafka_storage, release, tmp_path):
    file = properties(tmp_path / "server.properties", tmp_path, dynamic=True)
    kafka_storage(release, "format", "-c", file, "-t", CLUSTER_ID, "--standalone")
    version = parse_metadata_version(APACHE[release])
    theirs = (tmp_path / "a" / bootstrap.NAME).read_bytes()
    assert same_but_for_time(bootstrap.encode_bootstrap(default_levels(version), 0), theirs)
    theirs = (tmp_path / "a" / CHECKPOINT).read_bytes()
    (voter,) = VotersRecord.decode(list(next(Batches(theirs)))[2].value, 0).voters
    ours = bootstrap.InitialVoter(1, Uuid(voter.voter_directory_id), Address("localhost", 9093))
    assert same_but_for_time(bootstrap.encode_voters_checkpoint([ours], "CONTROLLER", 0), theirs)


def test_directory_formatted_by_apache_kafka_is_accepted(kafka_storage, release, tmp_path):
    file = properties(tmp_path / "server.properties", tmp_path, dynamic=False)
    kafka_storage(release, "format", "-c", file, "-t", CLUSTER_ID)
    opened = open_directories(BrokerConfig.load(file), 0)
    assert opened.cluster_id == CLUSTER_ID
    assert list(opened.directory_ids) == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert bootstrap.read_bootstrap(f"{tmp_path}/a")
    # Compares the lines of meta.properties in their order. Leaves out the second line, which is the date.
    found = meta_properties.read(f"{tmp_path}/a")
    theirs = (tmp_path / "a" / "meta.properties").read_text().splitlines()
    ours = meta_properties.encode(found, 0).decode().splitlines()
    assert [theirs[0], *theirs[2:]] == [ours[0], *ours[2:]]
    assert len(theirs[1].split()) == len(ours[1].split())


def test_storage_info_of_a_directory_equals_apache_kafkas_storage_info(kafka_storage, release, tmp_path, capsys):
    file = properties(tmp_path / "server.properties", tmp_path, dynamic=True)
    assert main(["storage", "format", "-c", file, "-t", CLUSTER_ID, "--standalone"]) == 0
    capsys.readouterr()
    assert main(["storage", "info", "-c", file]) == 0
    ours, codecs = capsys.readouterr().out.split("Found codecs:\n")
    assert ours == kafka_storage(release, "info", "-c", file)
    assert codecs.splitlines() == [f"  {line}" for line in describe_codecs()]


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
def test_quorum_of_several_is_formatted_like_4_3(kafka_storage, tmp_path, capsys, options):
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
            said[maker] = kafka_storage("apache-4.3", *asked)
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
