"""`kafkacore dump-log` for segments and snapshots. tests/interop compares the lines with kafka-dump-log's."""

import json
import os
import struct
import subprocess
import sys
import zlib

import pytest

import old_messages
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.metadata.records import RecordWriter
from kafkacore.protocol.features import LATEST_METADATA_VERSION
from kafkacore.protocol.messages import FeatureLevelRecord
from kafkacore.raft.control import control_batch, leader_change
from kafkacore.tools.main import main
from segments import crc32c
from transactions import COMMIT, marker

NAME = "00000000000000000007.log"
NOW = 1_700_000_000_000
CHILD_TIMEOUT_S = 20


def batch(base_offset, *values, codec="none", **fields):
    builder = RecordBatchBuilder(base_offset=base_offset, codec=codec, partition_leader_epoch=3, **fields)
    for at, value in enumerate(values):
        builder.append(NOW + at, b"k\xc3\xa9" if at == 0 else None, value, [("h", b"1"), ("n", None)] if at else [])
    return builder.build()


@pytest.fixture
def dump(tmp_path, capfdbinary):
    def run(data, *options, name=NAME, code=0):
        path = tmp_path / name
        path.write_bytes(data)
        assert main(["dump-log", str(path), *options]) == code
        told = capfdbinary.readouterr()
        err = told.err.decode().replace(str(tmp_path), "DIR")
        return told.out.decode().replace(str(tmp_path), "DIR").split("\n"), err

    return run


def test_dump_shows_a_line_for_each_batch(dump):
    sound = batch(7, b"one", b"two", codec="lz4", producer_id=5, producer_epoch=1, base_sequence=2**31 - 1)
    late = batch(9, b"three", log_append_time_ms=NOW + 9, delete_horizon_ms=77)
    lines, err = dump(sound + late)
    assert lines[:2] == [f"Dumping DIR/{NAME}", "Log starting offset: 7"]
    assert lines[2] == (
        "baseOffset: 7 lastOffset: 8 count: 2 baseSequence: 2147483647 lastSequence: 0 producerId: 5 producerEpoch: 1 "
        "partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: 0 CreateTime: {NOW + 1} size: {len(sound)} magic: 2 compresscodec: lz4 "
        f"crc: {int.from_bytes(sound[17:21], 'big')} isvalid: true"
    )
    assert " deleteHorizonMs: OptionalLong[77] " in lines[3]
    assert f" position: {len(sound)} LogAppendTime: {NOW + 9} size: {len(late)} " in lines[3]
    assert lines[4:] == [""]
    assert err == ""


def test_dump_shows_a_line_for_each_record(dump):
    lines, err = dump(batch(7, b"one", None, b"\xff\n"), "--print-data-log")
    assert lines[3:] == [
        f"| offset: 7 CreateTime: {NOW} keySize: 3 valueSize: 3 sequence: -1 headerKeys: [] key: ké payload: one",
        f"| offset: 8 CreateTime: {NOW + 1} keySize: -1 valueSize: -1 sequence: -1 headerKeys: [h,n]",
        f"| offset: 9 CreateTime: {NOW + 2} keySize: -1 valueSize: 2 sequence: -1 headerKeys: [h,n] payload: \ufffd",
        "",
        "",
    ]
    assert err == f"Non-consecutive offsets in DIR/{NAME}\n  -1 is followed by 7\n"
    lines, _ = dump(batch(7, b"one", None), "--print-data-log", "--skip-record-metadata")
    assert lines[3:] == ["| key: ké payload: one", "", ""]


def test_dump_shows_the_end_of_a_transaction(dump):
    lines, _ = dump(marker(7, 1, COMMIT), "--deep-iteration")
    assert lines[3].endswith(" headerKeys: [] endTxnMarker: COMMIT coordinatorEpoch: 7")


def test_dump_shows_records_of_the_metadata_log_as_json(dump):
    value = RecordWriter(LATEST_METADATA_VERSION).encode(FeatureLevelRecord(name="x", feature_level=2))
    leader = control_batch([leader_change(1, [], [])], 0, 4, NOW)
    lines, err = dump(leader + batch(1, value, b"\x01\x7f\x00"), "--cluster-metadata-decoder", name=NAME)
    assert lines[3].endswith(' LeaderChange: {"version":0,"leaderId":1,"voters":[],"grantingVoters":[]}')
    assert lines[5].endswith(
        ' payload: {"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"x","featureLevel":2}}'
    )
    assert " payload: Error at 2, skipping. metadata record type 127 is not known" in lines[6]
    assert err == ""


def test_json_output_has_an_object_for_each_line(dump):
    data = batch(7, b'a"\\\n\x01\xff', None) + marker(9, 1, COMMIT) + b"rest"
    lines, err = dump(data, "--print-data-log", "-o", "json")
    told = [json.loads(line) for line in lines[:-1]]
    assert [each["kind"] for each in told] == [
        "file", "segment", "batch", "record", "record", "batch", "record", "trailing", "gap"
    ]  # fmt: skip
    assert told[2]["baseOffset"] == 7
    assert told[2]["deleteHorizonMs"] is None
    assert told[2]["isvalid"] is True
    assert told[3]["payload"] == 'a"\\\n\x01\ufffd'
    assert told[3]["key"] == "ké"
    assert told[4]["headerKeys"] == ["h", "n"]
    assert "payload" not in told[4]
    assert told[6]["endTxnMarker"] == "COMMIT"
    assert told[7]["bytes"] == 4
    assert err == ""


def test_dump_counts_the_bytes_of_a_partial_batch(dump):
    whole = batch(7, b"one")
    for tail in (whole[:60], whole[:-1], b"x", bytes(17)):
        lines, err = dump(whole + tail)
        assert lines[3] == f"Found {len(tail)} invalid bytes at the end of {NAME}"
        assert err == ""
    lines, _ = dump(whole + whole, "--max-bytes", str(2 * len(whole) - 1))
    assert len(lines) == 4  # no line for batches beyond the limit or for the rest of the file


def test_dump_ends_with_the_place_of_the_damage(dump):
    whole = batch(7, b"one")
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    lines, err = dump(bytes(flipped) + whole)
    assert lines[2].endswith("isvalid: false")
    assert lines[3].endswith("isvalid: true")
    assert err == ""
    lines, err = dump(whole + bytes(100), code=1)
    assert len(lines) == 4
    assert err == f"DIR/{NAME}: byte {len(whole)}: the batch has an impossible length for its magic byte\n"
    torn = bytearray(batch(7, b"one", codec="zstd"))
    torn[61] ^= 0xFF
    lines, err = dump(bytes(torn), "--deep-iteration", code=1)
    assert lines[2].endswith("isvalid: false")
    assert err == f"DIR/{NAME}: byte 0: the body does not inflate with the codec that the attributes name\n"


def test_later_magic_byte_is_shown_as_apache_kafka_shows_it(dump):
    later = bytearray(batch(7, b"one"))
    later[16] = 9
    lines, _ = dump(bytes(later))
    assert " magic: 9 " in lines[2]
    assert lines[2].endswith("isvalid: true")  # the checksum does not cover the changed byte


def test_dump_shows_batches_of_old_releases(dump):
    body = struct.pack(">bbqi1si1s", 1, 0, NOW, 1, b"k", 1, b"v")
    entry = struct.pack(">qiI", 7, len(body) + 4, zlib.crc32(body)) + body
    lines, _ = dump(entry, "--print-data-log")
    assert lines[2:4] == [
        (
            f"offset: 7 position: 0 CreateTime: {NOW} size: {len(entry)} magic: 1 compresscodec: none "
            f"crc: {zlib.crc32(body)} isvalid: true"
        ),
        (
            f"| offset: 7 CreateTime: {NOW} keySize: 1 valueSize: 1 isValid: true crc: {zlib.crc32(body)} "
            "key: k payload: v"
        ),
    ]
    lines, _ = dump(entry[:-1] + b"w", "--deep-iteration", "-o", "json")
    assert json.loads(lines[3])["isValid"] is False


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_dump_shows_the_offset_of_each_message_of_a_compressed_set(dump, codec):
    lines, err = dump(old_messages.entries(7, 1, codec), "--deep-iteration")
    assert [line.split()[2] for line in lines[3:-1]] == ["7", "8", "9"]
    assert "valueSize: -1" in lines[5]
    assert err.endswith("  -1 is followed by 7\n")
    torn = bytearray(old_messages.entries(7, 1, codec))
    torn[40:] = bytes(len(torn) - 40)
    _, err = dump(bytes(torn), "--deep-iteration", code=1)
    assert "byte 0: the body does not inflate" in err


def test_dump_shows_a_batch_larger_than_a_block(dump):
    data, offset = b"", 7
    for size in (10, 1 << 20, 20, 70_000, 300_000, 5):
        data += batch(offset, b"x" * size)
        offset += 1
    lines, err = dump(data)
    assert [line.split()[1] for line in lines[2:-1]] == [str(each) for each in range(7, 13)]
    assert all(line.endswith("isvalid: true") for line in lines[2:-1])
    assert err == ""


def test_file_that_belongs_to_no_log_is_ignored_or_refused(dump, tmp_path, capfdbinary):
    lines, err = dump(b"", name="notes.txt")
    assert lines == ["Dumping DIR/notes.txt", ""]
    assert err == "Ignoring unknown file DIR/notes.txt\n"
    _, err = dump(b"", name="x.log", code=1)
    assert err == "DIR/x.log: has no offset as its name, but all files of a log do\n"
    for suffix in ("log", "index", "timeindex"):
        name = f"{2**63 - 1:020d}.{suffix}"  # the offset range leaves no room for records after this one
        for options in ([], ["--verify"]):
            _, err = dump(bytes(12), *options, name=name, code=1)
            assert err.endswith("has no offset as its name, but all files of a log do\n")
    assert main(["dump-log", "--files", f"{tmp_path}/0.log"]) == 1
    assert b"No such file" in capfdbinary.readouterr().err
    assert main(["dump-log", f"{tmp_path}/orders"]) == 1
    assert b"orders: No such file" in capfdbinary.readouterr().err
    assert main(["dump-log"]) == 2


def test_dump_reports_a_time_index_that_is_out_of_order(dump, tmp_path):
    late, early = RecordBatchBuilder(base_offset=7), RecordBatchBuilder(base_offset=8)
    late.append(NOW + 5, None, b"one")
    early.append(NOW, None, b"two")
    dump(late.build() + early.build())
    dump(b"", name=NAME.replace(".log", ".index"))
    name = NAME.replace(".log", ".timeindex")
    entries = struct.pack(">qiqi", NOW + 5, 0, NOW, 1)
    lines, err = dump(entries, name=name)
    assert lines[1:3] == [f"timestamp: {NOW + 5} offset: 7", f"timestamp: {NOW} offset: 8"]
    assert err.splitlines() == [
        f"Found out of order timestamp in :DIR/{name}",
        f"  Index timestamp: {NOW}, Previously indexed timestamp: {NOW + 5}",
    ]
    _, err = dump(entries, "--index-sanity-check", name=name, code=1)
    assert err == f"DIR/{name}: its last timestamp {NOW} is below the first one {NOW + 5}\n"


def test_dump_reports_an_index_entry_that_points_to_a_batch_above_the_limit(dump):
    whole = batch(7, b"one")
    dump(whole)
    entry, name = struct.pack(">ii", 0, 0), NAME.replace(".log", ".index")
    lines, err = dump(entry, "--max-message-size", str(len(whole)), name=name)
    assert (lines[1], err) == ("offset: 7 position: 0", "")
    _, err = dump(entry, "--max-message-size", str(len(whole) - 1), name=name, code=1)
    assert f"byte 0 of the log is not the start of a whole batch of at most {len(whole) - 1} bytes" in err


def test_directory_stands_for_the_logs_in_it_and_below_it(dump, tmp_path, capfdbinary):
    for log in ("b-0", "a-0"):
        (tmp_path / log).mkdir()
        (tmp_path / log / NAME).write_bytes(b"")
    (tmp_path / "a-0" / "partition.metadata").write_bytes(b"")
    (tmp_path / "a-0" / "up").symlink_to(tmp_path)
    assert main(["dump-log", str(tmp_path)]) == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines[::2] == [f"Dumping {tmp_path}/a-0/{NAME}", f"Dumping {tmp_path}/b-0/{NAME}"]


def test_dump_ends_silently_when_the_reader_closes_the_pipe(tmp_path):
    path = tmp_path / NAME
    path.write_bytes(batch(7, b"one"))
    # The output is larger than a pipe's buffer.
    command = [sys.executable, "-m", "kafkacore.tools.main", "dump-log", *[str(path)] * 1000]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as dumping:
        assert dumping.stdout.readline() == f"Dumping {path}\n".encode()
        dumping.stdout.close()
        assert dumping.stderr.read() == b""
        assert dumping.wait(CHILD_TIMEOUT_S) == 1


def test_control_record_without_a_type_is_reported_without_a_traceback(dump):
    builder = RecordBatchBuilder(base_offset=7, control=True)
    builder.append(NOW, b"k", b"v")
    lines, err = dump(builder.build(), "--deep-iteration", code=1)
    assert len(lines) > 3
    assert err == f"DIR/{NAME}: the key of the control record at offset 7 has no type\n"


def test_control_record_of_an_unknown_version_is_reported_without_a_traceback(dump):
    data = bytearray(control_batch([leader_change(1, [], [])], 7, 4, NOW))
    version = data.index(b"\x00\x00\x00\x00\x00\x01", 61 + 8)  # the version, followed by the leader's id
    data[version : version + 2] = b"\x01\x00"
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    _, err = dump(bytes(data), "--cluster-metadata-decoder", code=1)
    assert err == f"DIR/{NAME}: the control record at offset 7: LeaderChangeMessage has no version 256\n"


@pytest.mark.parametrize("decoder", ["--cluster-metadata-decoder", "--offsets-decoder"])
def test_corrupt_body_is_reported_when_a_decoder_reads_it(dump, decoder):
    data = bytearray(batch(7, b"one", codec="lz4"))
    data[70:] = bytes(len(data) - 70)
    _, err = dump(bytes(data), decoder, code=1)
    assert "does not inflate (lz4" in err


@pytest.mark.parametrize("options", [[], ["--verify"]])
@pytest.mark.parametrize("suffix", ["log", "index", "timeindex", "txnindex", "snapshot"])
def test_pipe_is_refused_without_waiting_for_it(tmp_path, capfd, suffix, options):
    (tmp_path / NAME).touch()
    path = tmp_path / f"00000000000000000007.{suffix}"
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert main(["dump-log", str(path), *options]) == 1
    assert f"{path}: is a pipe; copy its contents to a regular file" in capfd.readouterr().err


def test_device_is_refused(tmp_path, capfd):
    (tmp_path / NAME).symlink_to("/dev/zero")
    assert main(["dump-log", str(tmp_path / NAME)]) == 1
    assert "is a device" in capfd.readouterr().err


def test_dump_shows_aborted_transactions_up_to_a_malformed_entry(dump):
    entries = b"".join(struct.pack(">hqqqq", version, 7, 10, 12, 13) for version in (0, 0, 3, 0))
    lines, err = dump(entries, name="00000000000000000007.txnindex", code=1)
    told = "version: 0 producerId: 7 firstOffset: 10 lastOffset: 12 lastStableOffset: 13"
    assert lines[1:] == [told, told, ""]
    assert err == "DIR/00000000000000000007.txnindex: byte 68: an entry of a version other than 0\n"


def test_json_output_shows_keys_and_values_as_numbers(dump):
    builder = RecordBatchBuilder(base_offset=7)
    builder.append(NOW, struct.pack(">q", -2), b"v\xff")
    lines, err = dump(builder.build(), "--key-decoder-class", "LongDecoder", "-o", "json")
    assert json.loads(lines[3])["key"] == -2
    assert json.loads(lines[3])["payload"] == "v\ufffd"
    assert err == ""


def test_dump_reports_a_number_of_too_few_bytes(dump):
    """The dump shows the records before the one whose value is too short. There, kafka-dump-log shows a stack trace."""
    builder = RecordBatchBuilder(base_offset=7)
    builder.append(NOW, None, struct.pack(">i", 5))
    builder.append(NOW, None, b"abc")
    lines, err = dump(builder.build(), "--value-decoder-class", "IntegerDecoder", code=1)
    assert [line.rpartition(" payload: ")[2] for line in lines[3:]] == ["5", ""]
    assert err == f"DIR/{NAME}: IntegerDecoder cannot read the 3 bytes of the record at offset 8\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--remote-log-metadata-decoder"], "kafkacore has no tiered storage"),
        (["--key-decoder-class", "com.example.Avro"], "com.example.Avro is not one of StringDecoder, IntegerDecoder"),
        (["--value-decoder-class", "kafka.LongDecoder"], "kafka.LongDecoder is not one of"),
        (["--max-bytes", "-5"], "-5 is not a number of bytes of at least 0"),
        (["--max-message-size", "0"], "0 is not a number of bytes of at least 1"),
        (["--offsets-decoder", "--transaction-log-decoder"], "not allowed with argument --offsets-decoder"),
    ],
)
def test_wrong_options_are_refused(options, told, capfd):
    with pytest.raises(SystemExit, match="2"):
        main(["dump-log", "00000000000000000000.log", *options])
    assert told in " ".join(capfd.readouterr().err.split())


def test_two_decoders_for_one_record_are_refused(capfd):
    assert main(["dump-log", "0.log", "--offsets-decoder", "--key-decoder-class", "LongDecoder"]) == 2
    assert "cannot be combined with it" in capfd.readouterr().err


def test_greatest_max_bytes_means_no_limit(dump):
    lines, _ = dump(batch(7, b"one") + b"\0" * 5, "--max-bytes", str(2**31 - 1))
    assert lines[3] == f"Found 5 invalid bytes at the end of {NAME}"
