"""`kafkacore dump-log --verify` for logs with gaps in their offsets. In a compacted log the gaps are normal, and in any
other log they are damage."""

import pytest

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.metadata.records import RecordWriter
from kafkacore.protocol.features import LATEST_METADATA_VERSION
from kafkacore.protocol.messages import ConfigRecord, RemoveTopicRecord, TopicRecord
from kafkacore.storage.checkpoints import CLEANER_OFFSET, OffsetCheckpoint
from kafkacore.tools.main import main

NOW = 1_700_000_000_000
NAME = "00000000000000000000.log"
TOPIC_ID = Uuid.random()
TOPIC, BROKER = 2, 4


def batch(base_offset, count=2):
    builder = RecordBatchBuilder(base_offset=base_offset, partition_leader_epoch=1)
    for at in range(count):
        builder.append(NOW + base_offset + at, b"key", b"value")
    return builder.build()


class Directory:
    """A log directory. `verify` returns the problems that the command finds in a log, without the path."""

    def __init__(self, root, capfd):
        self.root, self.capfd = root, capfd

    def log(self, name, *base_offsets):
        (self.root / name).mkdir()
        (self.root / name / NAME).write_bytes(b"".join(map(batch, base_offsets)))

    def cleaned(self, **offsets):
        OffsetCheckpoint(str(self.root), CLEANER_OFFSET).write(
            {(topic, 0): offset for topic, offset in offsets.items()}
        )

    def metadata(self, *records):
        directory = self.root / "__cluster_metadata-0"
        directory.mkdir()
        writer = RecordWriter(LATEST_METADATA_VERSION)
        builder = RecordBatchBuilder(base_offset=0, partition_leader_epoch=1)
        for record in records:
            builder.append(NOW, None, writer.encode(record))
        (directory / NAME).write_bytes(builder.build())

    def verify(self, *paths):
        code = main(["dump-log", "--verify", *map(str, paths)])
        out, err = self.capfd.readouterr()
        assert code == (0 if "no problem found" in out else 1)
        return err.replace(f"{self.root}/", "").splitlines()


@pytest.fixture
def directory(tmp_path, capfd):
    return Directory(tmp_path, capfd)


def policy(name, value):
    return [
        TopicRecord(name=name, topic_id=TOPIC_ID),
        ConfigRecord(resource_type=TOPIC, resource_name=name, name="cleanup.policy", value=value),
    ]


def missing(log, offset, first, last):
    at = len(batch(0))
    return [f"{log}/{NAME}: byte {at}: offset {offset}: offsets {first} to {last} before it are missing"]


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_compacted_log_of_an_internal_topic_is_sound(directory, topic):
    directory.log(f"{topic}-0", 0, 10)
    assert directory.verify(directory.root / f"{topic}-0") == []


def test_log_is_sound_when_the_cleaner_has_compacted_it(directory):
    directory.log("t-0", 0, 10)
    directory.log("other-0", 0, 10)
    directory.cleaned(t=12)
    assert directory.verify(directory.root / "t-0") == []
    assert directory.verify(directory.root) == missing("other-0", 10, 2, 9)


def test_log_of_a_compacted_topic_is_sound_before_its_cleaner_has_run(directory):
    """A follower's log has gaps as well if its leader had already compacted the records."""
    directory.log("t-0", 0, 10)
    directory.metadata(*policy("t", "compact,delete"))
    assert directory.verify(directory.root / "t-0") == []


def test_default_policy_of_the_cluster_applies(directory):
    directory.log("t-0", 0, 10)
    default = ConfigRecord(resource_type=BROKER, resource_name="", name="log.cleanup.policy", value="compact")
    directory.metadata(TopicRecord(name="t", topic_id=TOPIC_ID), default)
    assert directory.verify(directory.root / "t-0") == []


def test_log_may_lack_only_offsets_below_the_checkpoint_when_its_policy_has_changed(directory):
    directory.log("t-0", 0, 10)
    directory.metadata(*policy("t", "delete"))
    directory.cleaned(t=10)
    assert directory.verify(directory.root / "t-0") == []
    directory.cleaned(t=9)
    assert directory.verify(directory.root / "t-0") == missing("t-0", 10, 2, 9)


def test_policy_of_a_deleted_topic_does_not_apply(directory):
    directory.log("t-0", 0, 10)
    again = TopicRecord(name="t", topic_id=Uuid.random())
    directory.metadata(*policy("t", "compact"), RemoveTopicRecord(topic_id=TOPIC_ID), again)
    assert directory.verify(directory.root / "t-0") == missing("t-0", 10, 2, 9)


def test_segments_of_a_compacted_log_need_not_follow_each_other(directory, monkeypatch):
    directory.log("t-0", 0)
    later = directory.root / "t-0" / "00000000000000000020.log"
    later.write_bytes(batch(20))
    told = f"t-0/{later.name}: offset 20: offsets from 2 on are missing: t-0/{NAME} ends there"
    assert directory.verify(directory.root / "t-0") == [told]
    directory.cleaned(t=20)
    assert directory.verify(directory.root / "t-0") == []
    monkeypatch.chdir(directory.root / "t-0")
    assert directory.verify(NAME, later.name) == []


def test_metadata_log_may_never_lack_offsets(directory):
    directory.metadata(*policy("t", "compact"))
    segment = directory.root / "__cluster_metadata-0" / NAME
    first = segment.read_bytes()
    segment.write_bytes(first + batch(10))
    (problem,) = directory.verify(directory.root / "__cluster_metadata-0")
    assert problem.endswith("offset 10: offsets 2 to 9 before it are missing")


def test_directory_to_be_deleted_may_lack_offsets(directory):
    """The metadata does not contain the deleted topic, so nothing shows whether it was compacted."""
    directory.log(f"t-0.{'0' * 32}-delete", 0, 10)
    directory.metadata()
    assert directory.verify(directory.root / f"t-0.{'0' * 32}-delete") == []


@pytest.mark.parametrize("damage", ["metadata", "checkpoint"])
def test_unreadable_file_is_reported_and_the_other_one_decides(directory, damage):
    directory.log("t-0", 0, 10)
    directory.metadata(*policy("t", "compact"))
    directory.cleaned(t=12)
    if damage == "metadata":
        unknown = RecordBatchBuilder(base_offset=2, partition_leader_epoch=1)
        unknown.append(NOW, None, b"\x01\x7f\x00")
        with (directory.root / "__cluster_metadata-0" / NAME).open("ab") as segment:
            segment.write(unknown.build())
    else:
        (directory.root / CLEANER_OFFSET).write_text("0\n1\nt 0\n")
    (remark,) = directory.verify(directory.root / "t-0")
    assert remark.startswith(
        "__cluster_metadata-0: cannot be read (" if damage == "metadata" else f"{CLEANER_OFFSET}: line 't 0' is not"
    )
