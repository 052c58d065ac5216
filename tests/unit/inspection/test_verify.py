"""`kafkacore dump-log --verify` reports each kind of damage with its file and position, and reports nothing about
undamaged parts."""

import json
import struct

import pytest

import old_messages
from kafkacore._fast.base.crc32c import checksum
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.storage.bootstrap import encode_bootstrap
from kafkacore.tools.main import main

NOW = 1_700_000_000_000
STEM = "00000000000000000100"


def batch(base_offset, count=2, *, timestamp=None, codec="none", epoch=3):
    builder = RecordBatchBuilder(base_offset=base_offset, codec=codec, partition_leader_epoch=epoch)
    for at in range(count):
        builder.append((NOW + base_offset if timestamp is None else timestamp) + at, b"key", b"value")
    return builder.build()


def sealed(data):
    """Returns the batch with a correct checksum."""
    return bytes(data[:17]) + struct.pack(">I", checksum(data[21:])) + bytes(data[21:])


class Log:
    """A log's directory. `verify` runs the command, and returns its lines without the path of the directory."""

    def __init__(self, directory, capfd):
        self.directory, self.capfd = directory, capfd

    def write(self, suffix, data, stem=STEM):
        (self.directory / f"{stem}{suffix}").write_bytes(data)

    def verify(self, *options, code=1):
        assert main(["dump-log", "--verify", str(self.directory), *options]) == code
        told = self.capfd.readouterr()
        assert (code == 0) == ("no problem found" in told.out)
        return told.err.replace(f"{self.directory}/", "").splitlines()


@pytest.fixture
def log(tmp_path, capfd):
    made = Log(tmp_path / "t-0", capfd)
    made.directory.mkdir()
    made.batches = [batch(100), batch(102, codec="zstd"), batch(104)]
    made.write(".log", b"".join(made.batches))
    made.positions = [0, len(made.batches[0]), len(made.batches[0]) + len(made.batches[1])]
    return made


def test_verify_finds_no_problem_in_a_sound_log(log):
    _, second, third = log.positions
    log.write(".index", struct.pack(">iiii", 3, second, 5, third) + bytes(16))  # followed by preallocated space
    log.write(".timeindex", struct.pack(">qiqi", NOW + 103, 3, NOW + 105, 5))
    log.write(".txnindex", struct.pack(">hqqqq", 0, 7, 100, 103, 104))
    log.write(".log", batch(106), stem="00000000000000000106")
    assert log.verify(code=0) == []
    assert log.verify("--deep-iteration", code=0) == []


def test_verify_reports_a_wrong_checksum(log):
    torn = bytearray(log.batches[1])
    torn[-1] ^= 1
    log.write(".log", log.batches[0] + torn + log.batches[2])
    at = log.positions[1]
    assert log.verify() == [f"{STEM}.log: byte {at}: offset 102: the checksum does not match the batch"]
    assert main(["dump-log", "--verify", "-o", "json", str(log.directory)]) == 1
    problem, summary = map(json.loads, log.capfd.readouterr().out.splitlines())
    assert (problem["kind"], problem["position"], problem["offset"]) == ("problem", at, 102)
    assert summary == {"kind": "verified", "files": 1, "problems": 1}


def test_verify_reports_missing_offsets_unless_compaction_removed_them(log):
    log.write(".log", log.batches[0] + log.batches[2])
    at = log.positions[1]
    assert log.verify() == [f"{STEM}.log: byte {at}: offset 104: offsets 102 to 103 before it are missing"]
    assert log.verify("--compacted", code=0) == []
    thin = bytearray(batch(100, 3))
    struct.pack_into(">i", thin, 23, 5)
    log.write(".log", sealed(thin))
    assert log.verify() == [f"{STEM}.log: byte 0: offset 100: it contains 3 records, but its offsets are 100 to 105"]
    assert log.verify("--compacted", code=0) == []


def test_verify_reports_offsets_that_go_back(log):
    log.write(".log", log.batches[0] + log.batches[0])
    at = log.positions[1]
    told = f"{STEM}.log: byte {at}: offset 100: it begins at or before offset 101, where the batch before it ends"
    assert log.verify("--compacted") == [told]
    log.write(".log", batch(98))
    assert log.verify()[0].startswith(f"{STEM}.log: byte 0: offset 98: it begins at or before offset 99")


def test_verify_reports_an_offset_too_far_from_the_base_offset(log):
    log.write(".log", batch(100) + batch(100 + 2**31 - 1))
    (told,) = log.verify("--compacted")
    assert told.endswith("it is too far from the segment's base offset 100")
    log.write(".log", batch(100) + batch(100 + 2**31 - 2))
    assert log.verify("--compacted", code=0) == []


def test_verify_reports_a_leader_epoch_that_goes_back(log):
    log.write(".log", batch(100, epoch=5) + batch(102, epoch=4))
    at = log.positions[1]
    assert log.verify() == [f"{STEM}.log: byte {at}: offset 102: its leader epoch 4 follows the later 5"]


def test_verify_reports_bytes_that_are_no_batch(log):
    end = sum(map(len, log.batches))
    log.write(".log", b"".join(log.batches) + b"abc")
    assert log.verify() == [f"{STEM}.log: byte {end}: offset 106: 3 bytes at its end are not a whole batch"]
    log.write(".log", b"".join(log.batches) + bytes(100))
    told = "the batch has an impossible length for its magic byte"
    assert log.verify() == [f"{STEM}.log: byte {end}: offset 106: {told}"]


def test_verify_decodes_records_only_on_request(log):
    wrong = bytearray(batch(100))
    struct.pack_into(">q", wrong, 35, NOW)
    log.write(".log", sealed(wrong))
    assert log.verify(code=0) == []
    told = "its greatest timestamp does not match its records"
    assert log.verify("--deep-iteration") == [f"{STEM}.log: byte 0: offset 100: {told}"]
    wrong = bytearray(batch(100))
    wrong[61] = 1  # the size of the batch's first record
    log.write(".log", sealed(wrong))
    told = "a record of the batch is malformed"
    assert log.verify("--deep-iteration") == [f"{STEM}.log: byte 0: offset 100: {told}"]


def test_verify_reads_segments_of_old_releases(log):
    log.write(".log", old_messages.segment(100))
    assert log.verify(code=0) == []
    assert log.verify("--deep-iteration", code=0) == []
    wrong = bytearray(old_messages.entries(100, 1, "none"))
    wrong[-1] ^= 1
    log.write(".log", bytes(wrong) + old_messages.entries(100, 1, "gzip"))
    first, second = log.verify()
    assert first.endswith("offset 102: the checksum does not match the batch")
    assert second.endswith("it begins at or before offset 102, where the batch before it ends")


def test_verify_reports_segments_that_do_not_follow_each_other(log):
    log.write(".log", batch(110), stem="00000000000000000110")
    (told,) = log.verify()
    assert told.startswith("00000000000000000110.log: offset 110: offsets from 106 on are missing")
    assert log.verify("--compacted", code=0) == []
    log.directory.joinpath("00000000000000000110.log").unlink()
    log.write(".log", batch(103), stem="00000000000000000103")
    (told,) = log.verify("--compacted")
    assert told.startswith("00000000000000000103.log: offset 103: begins inside ")


def test_verify_reports_a_wrong_offset_index(log):
    _, second, third = log.positions
    log.write(".index", struct.pack(">iiii", 3, second + 1, 5, third))
    told = f"{STEM}.index: byte 0: offset 103: its entry points to byte {second + 1} of the log, where no batch begins"
    assert log.verify() == [told]
    log.write(".index", struct.pack(">ii", 5, third + 1))
    told = f"{STEM}.index: byte 0: offset 105: its entry points to byte {third + 1} of the log, where no batch begins"
    assert log.verify() == [told]
    log.write(".index", struct.pack(">ii", 1, third))
    told = f"{STEM}.index: byte 0: offset 101: its entry points to byte {third} of the log, where a later batch begins"
    assert log.verify() == [told]
    log.write(".index", struct.pack(">iiii", 5, third, 3, second))
    assert log.verify() == [f"{STEM}.index: byte 8: its entry is not greater than the one before"]
    end = sum(map(len, log.batches))
    log.write(".index", struct.pack(">ii", 9, end) + b"xyz")
    assert log.verify() == [
        f"{STEM}.index: byte 8: 3 bytes at its end are not a whole entry",
        f"{STEM}.index: byte 0: offset 109: its entry points to byte {end} of the log, but the log ends at byte {end}",
    ]


def test_verify_reports_a_wrong_time_index(log):
    log.write(".timeindex", struct.pack(">qi", NOW + 102, 3))
    (told,) = log.verify()
    assert told.startswith(f"{STEM}.timeindex: byte 0: offset 103: its entry with timestamp {NOW + 102} names a batch ")
    log.write(".log", batch(100, timestamp=NOW + 500) + batch(102, timestamp=NOW))
    log.write(".timeindex", struct.pack(">qi", NOW + 1, 3))
    (told,) = log.verify()
    assert told.endswith(f"its entry with timestamp {NOW + 1} has later records before it")
    log.write(".timeindex", struct.pack(">qi", NOW + 501, 9))
    (told,) = log.verify()
    assert f"is after the end of the log at byte {len(batch(100)) * 2}" in told


def test_time_index_may_name_an_offset_that_compaction_removed(log):
    log.write(".log", log.batches[0] + log.batches[2])
    log.write(".timeindex", struct.pack(">qi", NOW + 105, 3))
    (told,) = log.verify("--compacted")
    assert told.endswith(f"its entry with timestamp {NOW + 105} names an offset that the log does not have")


def test_verify_does_not_check_the_index_of_a_damaged_log(log):
    log.write(".log", b"".join(log.batches)[:-1])
    log.write(".index", struct.pack(">ii", 5, log.positions[2]))
    first, second = log.verify()
    assert first.startswith(f"{STEM}.log: byte {log.positions[2]}: offset 104: ")
    assert "was not compared with" in second


def test_verify_reports_wrong_transaction_indexes_and_producer_snapshots(log):
    log.write(".txnindex", struct.pack(">hqqqqhqqqq", 0, 7, 100, 103, 104, 0, 8, 101, 102, 103) + b"x")
    one, other = log.verify()
    assert one.startswith(f"{STEM}.txnindex: byte 68: 1 bytes")
    assert other.startswith(f"{STEM}.txnindex: byte 34: offset 102: a transaction that ended at 102 follows")
    log.write(".txnindex", struct.pack(">hqqqq", 0, 7, 90, 95, 104))
    assert "did not end in this segment" in log.verify()[0]
    log.write(".txnindex", struct.pack(">hqqqq", 4, 7, 100, 103, 104))
    assert "version" in log.verify()[0]
    log.write(".txnindex", b"")
    for data, told in (
        (b"", "has 0 bytes, but the shortest producer snapshot has 10"),
        (b"no snapshot", "is a producer snapshot of version 28271, but only version 1 is known"),
        (
            struct.pack(">hIi", 1, 7, 0),
            f"contains the checksum 7, but the checksum of its content is {checksum(bytes(4))}",
        ),
        (
            struct.pack(">hIi", 1, checksum(b"\0\0\0\2"), 2),
            "has 0 bytes of entries, but should have 2 entries",
        ),
    ):
        log.write(".snapshot", data)
        assert log.verify() == [f"{STEM}.snapshot: {told}"]
    producer = struct.pack(">qhiqiqiq", 7, 0, 1, 103, 1, NOW, 0, -1)
    for entries, told in (([producer], []), ([producer] * 2, [f"{STEM}.snapshot: has producer id 7 twice"])):
        body = struct.pack(">i", len(entries)) + b"".join(entries)
        log.write(".snapshot", struct.pack(">hI", 1, checksum(body)) + body)
        assert log.verify(code=bool(told)) == told


def test_verify_reports_an_incomplete_snapshot_of_the_metadata_log(log):
    name = "00000000000000000005-0000000001.checkpoint"
    whole = encode_bootstrap({"metadata.version": 30}, NOW)
    (log.directory / name).write_bytes(whole)
    assert log.verify(code=0) == []
    (length,) = struct.unpack_from(">i", whole, 8)
    first = 12 + length
    (log.directory / name).write_bytes(whole[first:])
    assert f"{name}: does not begin with the header of a snapshot" in log.verify()
    (log.directory / name).write_bytes(whole[:first])
    assert f"{name}: does not end with the footer of a snapshot: it is not complete" in log.verify()
    torn = bytearray(whole)
    torn[first - 1] ^= 1
    (log.directory / name).write_bytes(torn)
    assert log.verify()[0] == f"{name}: byte 0: the checksum does not match the batch"


def test_verify_reports_a_frequent_problem_only_a_few_times(log):
    log.write(".log", b"".join(batch(offset) for offset in range(100, 200, 4)))
    told = log.verify()
    assert len(told) == 11
    assert told[-1].endswith("14 more batches from here on have the same problem")


def test_verify_reports_missing_and_unknown_files(log, capfd):
    (log.directory / "notes.txt").write_bytes(b"")
    for path, told in ((log.directory / "notes.txt", "0 files, no problem found"), (log.directory / "no", "")):
        code = main(["dump-log", "--verify", str(path)])
        out, err = capfd.readouterr()
        assert (code, told in out, "No such file" in err) == ((0, True, False) if told else (1, True, True))
    assert main(["dump-log", "--verify", str(log.directory / f"{STEM}.index")]) == 1
    out, err = capfd.readouterr()
    assert err == f"{log.directory}/{STEM}.index: No such file or directory\n"
    assert out == "1 file, 1 problem found\n"
