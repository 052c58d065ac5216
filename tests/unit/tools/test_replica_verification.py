"""`kafkacore replica-verification` compares the log directories of stopped brokers, and live brokers. Live brokers may
delete records meanwhile."""

import asyncio
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore.inspection.replicas import compare_directories
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafkacore.storage.checkpoints import REPLICATION_OFFSET, OffsetCheckpoint
from kafkacore.tools.main import main
from kafkacore.tools.replica_verification import Place, compare_replicas, report


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
        ["verification process is started", "max lag is 0 for partition t-0 at offset 6 among 1 partitions"],
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
    code, lines = verified(capsys, broker(tmp_path, "one", {0: [batch(0)]}, 2))
    assert (code, lines[1]) == (1, "no partition has two replicas in these directories")


def test_directory_that_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replica-verification", "--directories", f"{tmp_path}/missing"]) == 1
    assert capsys.readouterr().err == f"kafkacore: {tmp_path}/missing: No such file or directory\n"


@pytest.mark.parametrize("option", ["--report-interval-ms", "--max-wait-ms", "--fetch-size"])
@pytest.mark.parametrize("value", ["-5", "x", "99999999999999999999999999"])
def test_number_out_of_range_is_refused(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["replica-verification", "--directories", "d", option, value])
    assert ended.value.code == 2
    assert f"argument {option}: '{value}' must be a whole number " in capsys.readouterr().err


# --- live replicas ---


class Replica:
    """A stub of a broker with one replica of t-0. It deletes records during a comparison: `deletes` maps a number of
    requests to the log start offset after these requests."""

    host, port = "h", 1

    def __init__(self, batches: list[bytes], start: int = 0, deletes: dict[int, int] | None = None) -> None:
        self.batches = [(next(iter(Batches(each))).next_offset, each) for each in batches]
        self.start, self.deletes = start, deletes or {}
        self.asked = 0

    async def request(self, message: Any, version: int) -> Any:
        self.start = self.deletes.get(self.asked, self.start)
        self.asked += 1
        if isinstance(message, ListOffsetsRequest):
            assert message.replica_id == -2, "a follower answers other clients with NOT_LEADER_OR_FOLLOWER"
            told: Any = ListOffsetsResponse.ListOffsetsPartitionResponse(offset=self.start)
            topic: Any = ListOffsetsResponse.ListOffsetsTopicResponse(partitions=[told])
            return ListOffsetsResponse(topics=[topic])
        offset = message.topics[0].partitions[0].fetch_offset
        told = FetchResponse.PartitionData(high_watermark=END, log_start_offset=self.start)
        if offset < self.start:
            told = FetchResponse.PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=-1)
        else:
            told.records = next((data for end, data in self.batches if end > offset), b"")
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[told])])


END = 20
ALL = [batch(offset) for offset in range(0, END, 2)]
OPTIONS = Namespace(fetch_size=1, max_wait_ms=0)


def compared(*replicas: Replica) -> str | None:
    nodes = dict(enumerate(replicas))
    found = asyncio.run(compare_replicas(Place("t", 0), list(nodes), nodes, OPTIONS))
    assert (found.end, found.lag) == (END, 0)
    return found.difference


def test_live_replicas_are_compared_from_the_latest_log_start() -> None:
    assert compared(Replica(ALL, 4), Replica(ALL[3:], 6)) is None


@pytest.mark.parametrize("asked", range(14))
@pytest.mark.parametrize("start", [2, 8, 14, END])
def test_records_that_retention_deletes_meanwhile_are_no_difference(asked: int, start: int) -> None:
    assert compared(Replica(ALL), Replica(ALL, deletes={asked: start})) is None
    assert compared(Replica(ALL, deletes={asked: start}), Replica(ALL, deletes={asked + 1: start, 12: END - 2})) is None


@pytest.mark.parametrize("asked", range(14))
def test_other_difference_is_found_when_retention_deletes_records_meanwhile(asked: int) -> None:
    other = [*ALL[:-1], batch(END - 2, b"w")]
    found = compared(Replica(ALL), Replica(other, deletes={asked: 8}))
    assert found == f"the batch at offset {END - 2} differs between replica 0 and replica 1"


class Unreachable(Replica):
    async def request(self, message: Any, version: int) -> Any:
        raise ConnectionError("h:1 cannot be reached")


@pytest.mark.parametrize(
    ("nodes", "difference"),
    [
        ({0: Replica(ALL)}, "replica 1 is not alive"),
        ({0: Replica(ALL), 1: Unreachable(ALL)}, "a replica could not be read: h:1 cannot be reached"),
    ],
)
def test_no_lag_is_reported_when_a_replica_cannot_be_read(
    nodes: dict[int, Replica], difference: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = asyncio.run(compare_replicas(Place("t", 0), [0, 1], nodes, OPTIONS))
    assert report([found]) is False
    [line] = capsys.readouterr().out.splitlines()
    assert line.endswith(f": partition t-0: {difference}")


def test_single_replica_is_counted_and_not_read() -> None:
    alone = Replica(ALL)
    assert compared(alone) is None
    assert alone.asked == 1
