"""Random histories of metadata records of every type. Our snapshot of each history is compared with Apache Kafka's.

`golden.Images` makes the histories at the levels 21 and 30 of metadata.version, and applies MetadataDelta and
MetadataImage of Apache Kafka 4.3 to them.
"""

import json
from collections import Counter

import pytest

from golden import golden_file
from kafkacore.metadata.records import RECORD_TYPES, RecordWriter, decode_record
from kafkacore.metadata.snapshot import image_of, records_of

# Apache Kafka 4.3 does not store the state of a migration in an image. All transactions end before an image is made.
NOT_IN_AN_IMAGE = {"ZkMigrationStateRecord", "BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"}


@pytest.fixture(scope="module")
def histories():
    return json.loads(golden_file("4.3", "Images").read_text())


def read(value):
    """Returns a record as text. Its unordered lists are sorted."""
    record = decode_record(bytes.fromhex(value))
    for field in ("log_dirs", "cordoned_log_dirs"):
        if getattr(record, field, None):
            setattr(record, field, sorted(getattr(record, field)))
    if record.NAME == "ProducerIdsRecord":  # our image also stores the broker that received the last block
        record.broker_id = record.broker_epoch = -1
    if record.NAME == "ClientQuotaRecord":
        record.entity.sort(key=lambda each: each.entity_type)
    return repr(record)


def test_snapshot_has_the_records_of_apache_kafkas_snapshot(histories):
    for history in histories:
        image = image_of([decode_record(bytes.fromhex(value)) for value in history["records"]], 0, 1, 0)
        writer = RecordWriter(image.metadata_version)
        ours = [writer.encode(record).hex() for record in records_of(image)]
        assert Counter(map(read, ours)) == Counter(map(read, history["snapshot"]))
        # The values begin with three bytes: the frame version, the type and the version. So the types and versions
        # agree.
        assert {value[:6] for value in ours} == {value[:6] for value in history["snapshot"]}


def test_histories_have_records_of_every_type(histories):
    seen = {bytes.fromhex(value)[1] for history in histories for value in history["records"]}
    assert {RECORD_TYPES[number] for number in seen} == set(RECORD_TYPES.values()) - NOT_IN_AN_IMAGE
