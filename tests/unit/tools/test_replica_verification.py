"""`kafkacore replica-verification` for the log directories of stopped brokers."""

from pathlib import Path

import pytest

from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.inspection.replicas import compare_directories
from kafkacore.storage.checkpoints import REPLICATION_OFFSET, OffsetCheckpoint
from kafkacore.tools.main import main


def batch(base_offset: int, value: bytes = b"v", count: int = 2) -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset, partition_leader_epoch=0)
    for _ in range(count):
        builder.append(1_700_000_000_000, None, value)
    return bytes(builder.build())


def broker(path: Path, name: str, segments: dict[int, list[bytes]], high_watermark: int) -> str:
    """Makes a log directory that contains the partition t-0."""
    partition = path / name / "t-0"
    partition.mkdir(parents=True)
    for base_offset, batches in segments.items():
        (partition / f"{base_offset:020}.log").write_bytes(b"".join(batches))
    OffsetCheckpoint(str(path / name), REPLICATION_OFFSET).write({("t", 0): high_watermark})
    return str(path / name)


def verified(capsys: pytest.CaptureFixture[str], *directories: str) -> tuple[int, list[str]]:
    """Runs the tool. Returns the exit code, and the lines without their times."""
    code = main(["replica-verification", "--directories", *directories])
    return code, [line.split(": ", 1)[1] for line in capsys.readouterr().out.splitlines()]


def test_replicas_agree_whatever_their_segments_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = broker(tmp_path, "one", {0: [batch(0), batch(2)], 4: [batch(4)]}, 6)
    two = broker(tmp_path, "two", {0: [batch(0), batch(2), batch(4)]}, 6)
    assert verified(capsys, one, two) == (
        0,
        ["verification process is started.", "max lag is 0 for partition t-0 at offset 6 among 1 partitions"],
    )


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ([batch(0), batch(2, b"w")], "the batch at offset 2 differs"),
        ([batch(0)], "has no batch at offset 2"),
        ([batch(0), batch(3)], "has a batch at offset 3, where"),
        ([batch(0), batch(2)[:-1]], "has no batch at offset 2"),
        ([batch(0), batch(2, count=1), batch(3)], "the batch at offset 2 differs"),
    ],
)
def test_difference_below_the_high_watermark_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: list[bytes], difference: str
) -> None:
    one = broker(tmp_path, "one", {0: [batch(0), batch(2)]}, 4)
    two = broker(tmp_path, "two", {0: other}, 4)
    code, lines = verified(capsys, one, two)
    assert code == 1
    assert lines[1].startswith("partition t-0: ")
    assert difference in lines[1]
    found = next(compare_directories([two, one])).difference
    assert found is not None, "the order of the directories must not matter"


def test_records_above_the_least_high_watermark_may_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = broker(tmp_path, "one", {0: [batch(0), batch(2)]}, 2)
    two = broker(tmp_path, "two", {0: [batch(0), batch(2, b"w")]}, 4)
    code, lines = verified(capsys, one, two)
    assert (code, lines[1]) == (0, "max lag is 2 for partition t-0 at offset 2 among 1 partitions")


def test_replica_whose_log_begins_later_is_compared_from_there(tmp_path: Path) -> None:
    one = broker(tmp_path, "one", {0: [batch(0)], 2: [batch(2)]}, 4)
    two = broker(tmp_path, "two", {2: [batch(2)]}, 4)
    assert next(compare_directories([one, two])).difference is None


def test_partition_of_one_directory_has_no_other_replica(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        verified(capsys, broker(tmp_path, "one", {0: [batch(0)]}, 2))[1][1]
        == "no partition has two replicas in these directories"
    )
