"""`kafkacore storage`: which files it writes, what it prints, and what it refuses. Also tests on which directories a
node starts.
"""

import hashlib
import hmac
import os
from base64 import b64decode

import pytest

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.record.batch import Batches, ControlRecordType
from kafkacore.config import BrokerConfig
from kafkacore.config.addresses import Address
from kafkacore.inspection.directories import describe_directories
from kafkacore.protocol.messages import (
    FeatureLevelRecord,
    KRaftVersionRecord,
    SnapshotHeaderRecord,
    UserScramCredentialRecord,
    VotersRecord,
)
from kafkacore.storage import bootstrap, meta_properties
from kafkacore.storage.bootstrap import InitialVoter
from kafkacore.storage.directories import open_directories
from kafkacore.storage.errors import LogDirectoryError, MalformedFileError
from kafkacore.storage.format import FormatError, FormatOptions, format_directories
from kafkacore.tools.main import main

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
OTHER_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
NOW_MS = 1_795_261_705_000
SAME_ID = "(all nodes of a cluster have the same ID)"
INITIAL = "1@a:9093:JEXY6aqzQY-32P5TStzaFg,2@[::1]:9094:MvDxzVmcRsaTz33bUuRU6A"


@pytest.fixture
def config(tmp_path):
    def make(changes=None):
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": f"{tmp_path}/a,{tmp_path}/b",
        } | (changes or {})
        return BrokerConfig({key: value for key, value in properties.items() if value is not None})

    return make


DYNAMIC = {"controller.quorum.voters": None, "controller.quorum.bootstrap.servers": "localhost:9093"}


def format_all(config, **options):
    said = []
    format_directories(config, FormatOptions(options.pop("cluster_id", CLUSTER_ID), **options), NOW_MS, said.append)
    return said


def bootstrap_levels(directory):
    records = [FeatureLevelRecord.decode(record[3:], 0) for record in bootstrap.read_bootstrap(directory)]
    return {record.name: record.feature_level for record in records}


def voters_checkpoint(directory):
    path = os.path.join(directory, "__cluster_metadata-0", "00000000000000000000-0000000000.checkpoint")
    with open(path, "rb") as file:
        return list(Batches(file.read()))


# -- format


def test_every_directory_is_formatted(config, tmp_path):
    made = config({"metadata.log.dir": f"{tmp_path}/m"})
    said = format_all(made)
    assert said == [
        f"Formatting data directory {tmp_path}/a with metadata.version 4.3-IV0.",
        f"Formatting data directory {tmp_path}/b with metadata.version 4.3-IV0.",
        f"Formatting metadata directory {tmp_path}/m with metadata.version 4.3-IV0.",
    ]
    opened = open_directories(made, NOW_MS)
    assert (opened.cluster_id, opened.node_id, opened.failed) == (CLUSTER_ID, 1, {})
    assert list(opened.directory_ids) == [f"{tmp_path}/a", f"{tmp_path}/b", f"{tmp_path}/m"]
    assert len(set(opened.directory_ids.values())) == 3
    assert not list(tmp_path.rglob("*.tmp"))


def test_first_records_are_the_levels_of_supported_features(config, tmp_path):
    format_all(config())
    assert bootstrap_levels(f"{tmp_path}/a") == {"metadata.version": 30, "eligible.leader.replicas.version": 1}


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        ({"release_version": "3.9"}, {"metadata.version": 21}),
        ({"release_version": "3.9-IV0"}, {"metadata.version": 21}),
        ({"features": {"metadata.version": 21}}, {"metadata.version": 21}),
        (
            {"release_version": "4.0", "features": {"transaction.version": 1}},
            {"metadata.version": 25, "transaction.version": 1},
        ),
    ],
)
def test_requested_feature_levels_are_written(config, tmp_path, options, levels):
    format_all(config(), **options)
    assert bootstrap_levels(f"{tmp_path}/a") == levels


def test_static_voters_leave_no_voters_in_the_log(config, tmp_path):
    format_all(config())
    assert not os.path.exists(f"{tmp_path}/a/__cluster_metadata-0")


def test_a_standalone_controller_is_its_own_first_voter(config, tmp_path):
    made = config(DYNAMIC)
    said = format_all(made, standalone=True)
    assert said[0] == f"Formatting dynamic metadata voter directory {tmp_path}/a with metadata.version 4.3-IV0."
    head, foot = voters_checkpoint(f"{tmp_path}/a")
    assert [record.control_type for record in head] == [
        ControlRecordType.SNAPSHOT_HEADER,
        ControlRecordType.KRAFT_VERSION,
        ControlRecordType.KRAFT_VOTERS,
    ]
    assert [record.control_type for record in foot] == [ControlRecordType.SNAPSHOT_FOOTER]
    header, version, voters = (record.value for record in head)
    assert SnapshotHeaderRecord.decode(header, 0).last_contained_log_timestamp == NOW_MS
    assert KRaftVersionRecord.decode(version, 0).kraft_version == 1
    (voter,) = VotersRecord.decode(voters, 0).voters
    assert voter.voter_id == 1
    assert voter.voter_directory_id == open_directories(made, NOW_MS).directory_ids[f"{tmp_path}/a"]
    (endpoint,) = voter.endpoints
    assert (endpoint.name, endpoint.host, endpoint.port) == ("CONTROLLER", "localhost", 9093)
    assert not os.path.exists(f"{tmp_path}/b/__cluster_metadata-0")


def test_initial_controllers_are_the_voters(config, tmp_path):
    made = config(DYNAMIC)
    format_all(made, initial_controllers=INITIAL)
    voters = VotersRecord.decode(list(voters_checkpoint(f"{tmp_path}/a")[0])[2].value, 0).voters
    assert [(voter.voter_id, voter.endpoints[0].host, voter.endpoints[0].port) for voter in voters] == [
        (1, "a", 9093),
        (2, "::1", 9094),
    ]
    assert str(open_directories(made, NOW_MS).directory_ids[f"{tmp_path}/a"]) == "JEXY6aqzQY-32P5TStzaFg"


def test_controller_that_joins_later_has_no_voters(config, tmp_path):
    said = format_all(config(DYNAMIC), no_initial_controllers=True)
    assert said[0] == f"Formatting metadata directory {tmp_path}/a with metadata.version 4.3-IV0."
    assert not os.path.exists(f"{tmp_path}/a/__cluster_metadata-0")


def test_formatted_directory_is_skipped_when_requested(config, tmp_path):
    made = config()
    format_all(made)
    with pytest.raises(FormatError, match=rf"{tmp_path}/a is already formatted. Use --ignore-formatted"):
        format_all(made)
    before = open_directories(made, NOW_MS)
    os.unlink(f"{tmp_path}/b/meta.properties")
    assert format_all(made, ignore_formatted=True) == [
        f"Formatting data directory {tmp_path}/b with metadata.version 4.3-IV0."
    ]
    after = open_directories(made, NOW_MS)
    assert after.directory_ids[f"{tmp_path}/a"] == before.directory_ids[f"{tmp_path}/a"]
    assert format_all(made, ignore_formatted=True) == ["All of the log directories are already formatted."]


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"cluster_id": "short"}, "cluster id 'short' is not 16 bytes"),
        ({}, {"cluster_id": "MkU3OEVBNTcwNTJENDM2+k"}, "is not 16 bytes in URL-safe base64"),
        ({}, {"release_version": "3.8"}, "metadata.version '3.8' is not known"),
        ({}, {"release_version": "3.9", "features": {"metadata.version": 21}}, "use --release-version instead"),
        ({}, {"features": {"no.such.version": 1}}, "feature 'no.such.version' is not known"),
        ({}, {"features": {"group.version": 9}}, "group.version 9 is not supported"),
        (
            {},
            {"release_version": "3.9", "features": {"eligible.leader.replicas.version": 1}},
            "needs metadata.version 23",
        ),
        ({}, {"features": {"kraft.version": 1}}, "kraft.version cannot be 1: controller.quorum.voters is set"),
        ({}, {"standalone": True}, "controller.quorum.voters is set, so neither --standalone nor"),
        (DYNAMIC, {}, "give one of --standalone, --initial-controllers or --no-initial-controllers"),
        (DYNAMIC, {"standalone": True, "no_initial_controllers": True}, "only one of"),
        (DYNAMIC, {"standalone": True, "features": {"kraft.version": 0}}, "kraft.version cannot be 0"),
        (DYNAMIC, {"initial_controllers": "1@a:9093"}, "must be id@host:port:directory-id"),
        (DYNAMIC, {"initial_controllers": "1@a:b:JEXY6aqzQY-32P5TStzaFg"}, "must end with a port"),
        (DYNAMIC, {"initial_controllers": "2147483648@a:9093:JEXY6aqzQY-32P5TStzaFg"}, "an int of at least 0"),
        (DYNAMIC, {"initial_controllers": "-1@a:9093:JEXY6aqzQY-32P5TStzaFg"}, "an int of at least 0"),
        (DYNAMIC, {"initial_controllers": "1@a:9093:short"}, "'short' is not a UUID"),
        (DYNAMIC, {"initial_controllers": ","}, "names no controller"),
        ({}, {"add_scram": ("PLAIN=[name=a,password=b]",)}, "must begin with SCRAM-SHA-256= or SCRAM-SHA-512="),
        ({}, {"add_scram": ("SCRAM-SHA-256=name=a",)}, "in [ and ]"),
        ({}, {"add_scram": ("SCRAM-SHA-256=[password=b]",)}, "names no user"),
        ({}, {"add_scram": ("SCRAM-SHA-256=[name=a]",)}, "needs password=, or saltedpassword= with its salt="),
        ({}, {"add_scram": ("SCRAM-SHA-256=[name=a,saltedpassword=YCE=]",)}, "with its salt="),
        ({}, {"add_scram": ("SCRAM-SHA-256=[name=a,password=b,iterations=4095]",)}, "must be from 4096 to 16384"),
        ({}, {"add_scram": ("SCRAM-SHA-256=[name=a,password=b,iterations=16385]",)}, "must be from 4096 to 16384"),
        ({}, {"add_scram": ("SCRAM-SHA-256=[name=a,password=b,salt=?]",)}, "salt is not base64"),
        ({}, {"add_scram": ("SCRAM-SHA-256=[name=a,password=b,colour=c]",)}, "has unknown fields: colour"),
        ({}, {"add_scram": ("SCRAM-SHA-256=[name=a,secret]",)}, "has a part without ="),
        ({}, {"add_scram": ("SCRAM-SHA-256=[name=\udcff,password=b]",)}, "is not valid UTF-8"),
        ({}, {"add_scram": ("SCRAM-SHA-256=[name=a,password=\udcff]",)}, "is not valid UTF-8"),
        (DYNAMIC, {"initial_controllers": f"{INITIAL},{INITIAL}"}, "has node id 1 twice"),
    ],
)
def test_impossible_options_are_refused(config, tmp_path, changes, options, message):
    with pytest.raises(FormatError) as error:
        format_all(config(changes), **options)
    assert message in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_node_in_zookeeper_mode_is_not_formatted():
    with pytest.raises(FormatError, match=r"process.roles is not set"):
        format_all(BrokerConfig({"zookeeper.connect": "localhost:2181"}))


def test_directories_of_another_cluster_are_refused(config):
    format_all(config())
    with pytest.raises(LogDirectoryError, match=f"cluster.id={CLUSTER_ID}, but {OTHER_CLUSTER_ID} is expected"):
        format_all(config(), cluster_id=OTHER_CLUSTER_ID, ignore_formatted=True)


# -- the first snapshots


def test_bootstrap_records_of_a_torn_file_are_refused(tmp_path):
    whole = bootstrap.encode_bootstrap({"metadata.version": 30, "group.version": 1}, NOW_MS)
    path = tmp_path / bootstrap.NAME
    assert bootstrap.read_bootstrap(str(tmp_path)) is None
    path.write_bytes(whole)
    assert len(bootstrap.read_bootstrap(str(tmp_path))) == 2
    for content in (b"", whole[:70], whole[:150], whole[:140] + b"\xff" + whole[141:]):
        path.write_bytes(content)
        with pytest.raises(MalformedFileError, match=r"bootstrap\.checkpoint"):
            bootstrap.read_bootstrap(str(tmp_path))


def test_bootstrap_records_may_lie_beside_the_voters(tmp_path):
    """Later releases use this form (KIP-1170)."""
    (tmp_path / "__cluster_metadata-0").mkdir()
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    voters = bootstrap.encode_voters_checkpoint([], "CONTROLLER", NOW_MS)
    path.write_bytes(voters)
    assert bootstrap.read_bootstrap(str(tmp_path)) is None
    levels = {"metadata.version": 30, "group.version": 1}
    path.write_bytes(voters + bootstrap.encode_bootstrap(levels, NOW_MS))
    read = [FeatureLevelRecord.decode(record[3:], 0) for record in bootstrap.read_bootstrap(str(tmp_path))]
    assert {each.name: each.feature_level for each in read} == levels
    # The file begins with the records that kafka-storage 4.3 writes.
    (tmp_path / bootstrap.NAME).write_bytes(bootstrap.encode_bootstrap({"metadata.version": 21}, NOW_MS))
    assert len(bootstrap.read_bootstrap(str(tmp_path))) == 1


def test_users_of_a_new_cluster_have_the_keys_of_their_passwords(config, tmp_path):
    asked = "SCRAM-SHA-256=[name=alice,password=pencil,iterations=4096,salt=W22ZaJ0SNY7soEsUEjb6gQ==]"
    format_all(config(), add_scram=(asked, "SCRAM-SHA-512=[name=bob,password=x]"))
    alice, bob = (
        UserScramCredentialRecord.decode(record[3:], 0)
        for record in bootstrap.read_bootstrap(f"{tmp_path}/a")
        if record[1] == UserScramCredentialRecord.API_KEY
    )
    assert (alice.name, alice.mechanism, alice.iterations) == ("alice", 1, 4096)
    # The example of RFC 7677. Its proof gives the client's key, from which the stored key is derived.
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(alice.stored_key, message, "sha256")
    client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == alice.stored_key
    assert hmac.digest(alice.server_key, message, "sha256") == b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert (bob.name, bob.mechanism, bob.iterations, len(bob.salt), len(bob.stored_key)) == ("bob", 2, 4096, 32, 64)


def test_voters_are_listed_in_the_order_of_their_ids():
    voters = [InitialVoter(node_id, Uuid.random(), Address("h", node_id)) for node_id in (3, 1, 2)]
    head, _ = Batches(bootstrap.encode_voters_checkpoint(voters, "CONTROLLER", NOW_MS))
    listed = VotersRecord.decode(list(head)[2].value, 0).voters
    assert [voter.voter_id for voter in listed] == [1, 2, 3]


# -- start


def test_an_unformatted_directory_stops_the_start_and_says_what_to_do(config, tmp_path):
    with pytest.raises(
        LogDirectoryError, match=rf"{tmp_path}/a: has no meta.properties; format it first: kafkacore storage"
    ):
        open_directories(config(), NOW_MS)
    format_all(config())
    os.unlink(f"{tmp_path}/b/meta.properties")
    # The message contains the cluster id that is already known, and the option to skip formatted directories.
    said = f"{tmp_path}/b: has no meta.properties.*--cluster-id {CLUSTER_ID} --ignore-formatted"
    with pytest.raises(LogDirectoryError, match=said):
        open_directories(config(), NOW_MS)


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({"controller.quorum.voters": "1@localhost:9093"}, '"$(kafkacore storage random-uuid)"'),
        ({"controller.quorum.bootstrap.servers": "a:1"}, '"$(kafkacore storage random-uuid)" --standalone'),
        ({"controller.quorum.bootstrap.servers": "a:1,b:2"}, f"ID --initial-controllers VOTERS {SAME_ID}"),
        ({"controller.quorum.voters": "1@localhost:9093,2@h:1"}, f"ID {SAME_ID}"),
        ({"process.roles": "broker", "controller.quorum.bootstrap.servers": "a:1"}, f"ID {SAME_ID}"),
        ({"process.roles": "broker", "controller.quorum.voters": "2@h:1"}, f"ID {SAME_ID}"),
    ],
)
def test_only_a_node_that_is_a_cluster_by_itself_is_advised_to_make_an_id(config, changes, command):
    settings = {"controller.quorum.voters": None, **changes}
    if settings.get("process.roles") == "broker":
        settings["listeners"] = "PLAINTEXT://localhost:9092"
    with pytest.raises(LogDirectoryError) as refused:
        open_directories(config(settings), NOW_MS)
    assert str(refused.value).endswith(f"kafkacore storage format --config FILE --cluster-id {command}")


def test_directories_of_another_node_stop_the_start(config):
    format_all(config())
    other = {"node.id": "2", "controller.quorum.voters": "2@localhost:9093"}
    with pytest.raises(LogDirectoryError, match=r"node.id=1, but the configuration has node.id=2"):
        open_directories(config(other), NOW_MS)


def rewrite(directory, **changes):
    found = meta_properties.read(directory)
    meta_properties.write(directory, found._replace(**changes), NOW_MS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cluster_id": OTHER_CLUSTER_ID}, "is expected; the directory belongs to another cluster"),
        ({"directory_id": Uuid(bytes(15) + b"\x07")}, "is reserved"),
        ({"version": 0}, "version=0, of ZooKeeper mode"),
    ],
)
def test_a_directory_that_does_not_belong_stops_the_start(config, tmp_path, changes, message):
    format_all(config())
    rewrite(f"{tmp_path}/b", **changes)
    with pytest.raises(LogDirectoryError) as error:
        open_directories(config(), NOW_MS)
    assert f"{tmp_path}/b/meta.properties" in str(error.value)
    assert message in str(error.value)


def test_a_copied_directory_stops_the_start(config, tmp_path):
    format_all(config())
    rewrite(f"{tmp_path}/b", directory_id=meta_properties.read(f"{tmp_path}/a").directory_id)
    with pytest.raises(LogDirectoryError, match=rf"is also that of {tmp_path}/a"):
        open_directories(config(), NOW_MS)


def test_a_metadata_log_in_a_data_directory_stops_the_start(config, tmp_path):
    format_all(config())
    os.mkdir(f"{tmp_path}/b/__cluster_metadata-0")
    with pytest.raises(LogDirectoryError, match=r"b/__cluster_metadata-0: the metadata log is not in metadata.log.dir"):
        open_directories(config(), NOW_MS)


def test_a_directory_without_an_id_is_given_one(config, tmp_path):
    format_all(config())
    rewrite(f"{tmp_path}/b", directory_id=None)
    given = open_directories(config(), NOW_MS).directory_ids[f"{tmp_path}/b"]
    assert open_directories(config(), NOW_MS).directory_ids[f"{tmp_path}/b"] == given


def test_a_data_directory_that_cannot_be_read_is_reported(config, tmp_path):
    format_all(config())
    (tmp_path / "b" / "meta.properties").write_text("version=1\n")
    opened = open_directories(config(), NOW_MS)
    assert list(opened.directory_ids) == [f"{tmp_path}/a"]
    assert "node.id is missing" in str(opened.failed[f"{tmp_path}/b"])
    (tmp_path / "a" / "meta.properties").write_text("version=1\n")
    with pytest.raises(LogDirectoryError, match="cannot be read, and holds the metadata"):
        open_directories(config(), NOW_MS)


def test_unreadable_directory_is_skipped_when_others_are_formatted(config, tmp_path):
    (tmp_path / "b").write_text("")
    first, second = format_all(config())
    assert first == (
        f"I/O error trying to read log directory {tmp_path}/b. Ignoring: {tmp_path}/b/meta.properties: Not a directory"
    )
    assert second.startswith(f"Formatting metadata directory {tmp_path}/a ")
    (tmp_path / "a" / "meta.properties").unlink()
    (tmp_path / "a" / "bootstrap.checkpoint").unlink()
    (tmp_path / "a").rmdir()
    (tmp_path / "a").write_text("")
    with pytest.raises(FormatError, match="No available log directories to format"):
        format_all(config())


# -- info


def test_info_reports_the_metadata(config, tmp_path):
    format_all(config())
    said = []
    assert describe_directories(config(), said.append)
    directory_id = meta_properties.read(f"{tmp_path}/a").directory_id
    assert said == [
        "Found log directories:",
        f"  {tmp_path}/a",
        f"  {tmp_path}/b",
        "",
        f"Found metadata: {{cluster.id={CLUSTER_ID}, directory.id={directory_id}, node.id=1, version=1}}",
        "",
    ]


def test_info_reports_problems(config, tmp_path):
    made = config({"metadata.log.dir": f"{tmp_path}/m"})
    (tmp_path / "a").mkdir()
    (tmp_path / "b").write_text("")
    said = []
    assert not describe_directories(made, said.append)
    formats = 'kafkacore storage format --config FILE --cluster-id "$(kafkacore storage random-uuid)"'
    assert said == [
        "Found log directory:",
        f"  {tmp_path}/a",
        "",
        "Found problems:",
        f"  {tmp_path}/a is not formatted.",
        f"  {tmp_path}/b is not a directory",
        f"  {tmp_path}/m does not exist",
        "",
        "Found remark:",
        f"  format the missing directories with: {formats}",
        "",
    ]


# -- the command line


@pytest.fixture
def server_properties(config, tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in config().static.items()))
    return str(path)


def test_format_and_info_from_the_command_line(server_properties, tmp_path, capsys):
    assert main(["storage", "info", "--config", server_properties]) == 1
    assert "does not exist" in capsys.readouterr().out
    assert (
        main(["storage", "format", "-c", server_properties, "-t", CLUSTER_ID, "-r", "4.0", "-f", "group.version=1"])
        == 0
    )
    assert bootstrap_levels(f"{tmp_path}/a") == {"metadata.version": 25, "group.version": 1}
    assert main(["storage", "info", "-c", server_properties]) == 0
    assert f"cluster.id={CLUSTER_ID}" in capsys.readouterr().out
    assert main(["storage", "format", "-c", server_properties, "-t", CLUSTER_ID]) == 1
    assert "is already formatted" in capsys.readouterr().err


def test_mistake_is_one_line_on_stderr(server_properties, capsys):
    for arguments, message in (
        (["--override", "num.partitions=0"], "kafkacore: num.partitions=0: must be an int of at least 1\n"),
        (
            ["-f", "group.version"],
            "kafkacore: --feature 'group.version' must be NAME=LEVEL, for example kraft.version=1\n",
        ),
        (["-t", "x"], "kafkacore: cluster id 'x' is not 16 bytes in URL-safe base64; "),
    ):
        assert main(["storage", "format", "-c", server_properties, "-t", CLUSTER_ID, *arguments]) == 1
        assert message in capsys.readouterr().err


def test_random_uuid(capsys):
    assert main(["storage", "random-uuid"]) == 0
    assert len(Uuid.parse(capsys.readouterr().out.strip())) == 16
