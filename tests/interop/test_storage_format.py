"""`kafkacore storage format` beside Apache Kafka's kafka-storage.sh: the same files, and each starts on the other's."""

import subprocess

import pytest

from brokers import APACHE, ApacheKafka, classpath
from checkpoints import same_but_for_time
from kafkacore._fast.batch import Batches
from kafkacore._fast.uuid import ONE, Uuid
from kafkacore.config import BrokerConfig
from kafkacore.config.addresses import Address
from kafkacore.protocol.features import default_levels, parse_metadata_version
from kafkacore.protocol.messages import VotersRecord
from kafkacore.storage import bootstrap, clean_shutdown, meta_properties, partition_metadata, quorum_state
from kafkacore.storage.checkpoints import RECOVERY_POINT, LeaderEpochCheckpoint, OffsetCheckpoint
from kafkacore.storage.directories import open_directories
from kafkacore.tools.main import main
from processes import PEERS, need

CLUSTER_ID = "kafkacorePeerAAAAAAAAA"
CHECKPOINT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
JAVA_TIMEOUT_S = 60


@pytest.fixture(params=APACHE)
def release(request):
    need((PEERS / f"kafka-{APACHE[request.param]}" / ".complete").exists(), "no jars of Apache Kafka: make peers")
    return request.param


def properties(path, directory, *, dynamic):
    quorum = (
        "controller.quorum.bootstrap.servers=localhost:9093" if dynamic else "controller.quorum.voters=1@localhost:9093"
    )
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={directory}/a,{directory}/b\n{quorum}\n"
    )
    return str(path)


def kafka_storage(release, *arguments):
    command = ["java", "-cp", classpath(APACHE[release]), "kafka.tools.StorageTool", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S).stdout


def test_the_first_snapshots_are_apache_kafkas(release, tmp_path):
    file = properties(tmp_path / "server.properties", tmp_path, dynamic=True)
    kafka_storage(release, "format", "-c", file, "-t", CLUSTER_ID, "--standalone")
    version = parse_metadata_version(APACHE[release])
    theirs = (tmp_path / "a" / bootstrap.NAME).read_bytes()
    assert same_but_for_time(bootstrap.encode_bootstrap(default_levels(version), 0), theirs)
    theirs = (tmp_path / "a" / CHECKPOINT).read_bytes()
    (voter,) = VotersRecord.decode(list(next(Batches(theirs)))[2].value, 0).voters
    ours = bootstrap.InitialVoter(1, Uuid(voter.voter_directory_id), Address("localhost", 9093))
    assert same_but_for_time(bootstrap.encode_voters_checkpoint([ours], "CONTROLLER", 0), theirs)


def test_directories_formatted_by_apache_kafka_are_taken(release, tmp_path):
    file = properties(tmp_path / "server.properties", tmp_path, dynamic=False)
    kafka_storage(release, "format", "-c", file, "-t", CLUSTER_ID)
    opened = open_directories(BrokerConfig.load(file), 0)
    assert opened.cluster_id == CLUSTER_ID
    assert list(opened.directory_ids) == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert bootstrap.read_bootstrap(f"{tmp_path}/a")
    # The lines of meta.properties, in their order; the second is the date.
    found = meta_properties.read(f"{tmp_path}/a")
    theirs = (tmp_path / "a" / "meta.properties").read_text().splitlines()
    ours = meta_properties.encode(found, 0).decode().splitlines()
    assert [theirs[0], *theirs[2:]] == [ours[0], *ours[2:]]
    assert len(theirs[1].split()) == len(ours[1].split())


def test_apache_kafka_tells_of_our_directories_what_we_tell(release, tmp_path, capsys):
    file = properties(tmp_path / "server.properties", tmp_path, dynamic=True)
    assert main(["storage", "format", "-c", file, "-t", CLUSTER_ID, "--standalone"]) == 0
    capsys.readouterr()
    assert main(["storage", "info", "-c", file]) == 0
    assert capsys.readouterr().out == kafka_storage(release, "info", "-c", file)


class FormattedByUs(ApacheKafka):
    """Apache Kafka on directories that kafkacore formatted."""

    options = ()

    def java(self, tool, *arguments):
        del tool
        assert arguments[0] == "format"
        options = ("--release-version", ".".join(self.release.split(".")[:2]), *self.options)
        assert main(["storage", *map(str, arguments), *options]) == 0


class DynamicQuorumByUs(FormattedByUs):
    options = ("--standalone",)

    def settings(self, overrides):
        given = super().settings(overrides)
        del given["controller.quorum.voters"]
        return given | {"controller.quorum.bootstrap.servers": self.controller}


@pytest.mark.parametrize("kind", [FormattedByUs, DynamicQuorumByUs], ids=["static", "dynamic"])
def test_apache_kafka_starts_on_directories_that_we_formatted(release, kind, tmp_path):
    broker = kind(release, tmp_path)  # returns once the broker is ready
    broker.stop()
    assert "ERROR" not in (tmp_path / "broker.log").read_text(errors="replace")
    # And what it left behind is read here.
    metadata_log = str(broker.log_dir / "__cluster_metadata-0")
    state = quorum_state.read(metadata_log)
    assert (state.leader_id, state.voters) == (1, (1,) if kind is FormattedByUs else ())
    assert clean_shutdown.read_epoch(str(broker.log_dir)) > 0
    assert partition_metadata.read(metadata_log) == ONE
    assert LeaderEpochCheckpoint(metadata_log).read()[0][1] in {0, 1}
    assert OffsetCheckpoint(str(broker.log_dir), RECOVERY_POINT).read() == {}
