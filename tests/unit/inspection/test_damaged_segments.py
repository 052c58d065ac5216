"""Segments with every kind of damage that the tests can make. The dump describes each segment up to the damage, and
nothing behind it."""

import json
import random

import pytest

import old_messages
from broken_batches import broken, sound_batches
from kafkacore._fast.record.batch import CorruptBatchError
from kafkacore._fast.record.describe import CONTENTS, JSON, METADATA, RECORDS, TEXT, Description
from kafkacore._fast.record.record_scan import RecordScan

SEGMENTS = 300


def described(path, style):
    """Returns the lines before the damage, and the kind of damage that the dump reports."""
    lines = b""
    with Description(path, style, RECORDS | METADATA | CONTENTS) as description:
        try:
            for some in description:
                lines += some
                assert some.endswith(b"\n")
        except CorruptBatchError as error:
            return lines.decode(), str(error)
        return lines.decode(), None


def is_read_to_its_end(path):
    with RecordScan(path) as scan:
        try:
            while scan.rows():
                pass
        except CorruptBatchError:
            return False
    return True


@pytest.fixture(scope="module")
def sound():
    return [*sound_batches(), old_messages.segment()]


def test_text_json_and_columns_end_at_the_same_place_when_a_segment_is_damaged(sound, tmp_path):
    rng = random.Random(1)
    path = tmp_path / "00000000000000000000.log"
    damaged = 0
    for _ in range(SEGMENTS):
        path.write_bytes(broken(rng, b"".join(rng.choices(sound, k=rng.randrange(1, 4)))))
        text, text_end = described(path, TEXT)
        lines, json_end = described(path, JSON)
        told = [json.loads(line) for line in lines.split("\n")[:-1]]
        assert text_end == json_end
        assert text.count("isvalid: ") == sum(each["kind"] == "batch" for each in told)
        assert all(each["kind"] in ("batch", "record") for each in told)
        damaged += text_end is not None
        assert is_read_to_its_end(path) or text_end is not None
    assert damaged > SEGMENTS / 4
