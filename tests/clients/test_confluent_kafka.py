"""librdkafka, in the newest release of confluent-kafka and in release 2.6: codecs, idempotence, administration and
offsets."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from processes import PEERS, need
from segments import CODECS, partition_batches

PROGRAM = Path(__file__).parent / "confluent_program.py"
RELEASES = {"newest": Path(sys.executable), "2.6": PEERS / "venv-confluent-2.6" / "bin" / "python"}


@pytest.fixture(params=RELEASES)
def dialogue(request, broker, topic_name):
    """Returns a function that runs a dialogue of confluent_program.py with one of the two releases of
    confluent-kafka."""
    python = RELEASES[request.param]
    need(python.exists(), "no confluent-kafka 2.6: make peers")

    def run(name, **settings):
        settings = {"bootstrap": broker.bootstrap, "topic": topic_name, **settings}
        command = [python, PROGRAM, name, json.dumps(settings)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_and_keep_their_codec_on_disk(dialogue, topic_name, log_dir, codec, idempotent):
    properties = {"compression.type": codec, "enable.idempotence": idempotent}
    seen = dialogue("round_trip", count=200, size=500, properties=properties)
    assert seen["offsets"] == list(range(200))
    assert seen["wrong"] == []
    stored = partition_batches(log_dir, topic_name)
    # If compression does not make a batch smaller, librdkafka sends the batch uncompressed. On slow machines, some
    # batches are that small.
    assert codec in {batch.codec for batch in stored}
    assert {batch.codec for batch in stored if batch.record_count > 10} <= {codec}
    assert all(batch.crc == batch.computed_crc for batch in stored)
    assert sum(batch.record_count for batch in stored) == 200
    assert {batch.producer_id >= 0 for batch in stored} == {idempotent}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_producer_succeeds_with_every_kind_of_acknowledgement(dialogue, acks):
    seen = dialogue("round_trip", properties={"acks": acks})
    assert seen["wrong"] == []
    # Without acknowledgements the producer does not learn the offsets.
    assert len(seen["offsets"]) == 100


def test_broker_takes_records_of_half_a_megabyte(dialogue):
    seen = dialogue("round_trip", count=20, size=500_000, properties={"message.max.bytes": 1_000_000})
    assert seen["wrong"] == []
    assert seen["offsets"] == list(range(20))


def test_broker_refuses_a_record_over_the_topic_limit(dialogue):
    assert dialogue("too_large") == "MSG_SIZE_TOO_LARGE"


def test_admin_creates_describes_widens_and_deletes_topics(dialogue):
    seen = dialogue("topics")
    assert seen["errors"] == {
        "exists": "TOPIC_ALREADY_EXISTS",
        "name": "TOPIC_EXCEPTION",
        "partitions": "INVALID_PARTITIONS",
        "replication": "INVALID_REPLICATION_FACTOR",
        "config": "INVALID_CONFIG",
        "value": "INVALID_CONFIG",
        "fewer": "INVALID_PARTITIONS",
        "same": "INVALID_PARTITIONS",
        "unknown": "UNKNOWN_TOPIC_OR_PART",
    }
    del seen["errors"]
    assert seen == {
        "partitions": 3,
        "retention": "12345",
        "cleanup": "delete",
        "widened": 5,
        "validate_only_creates_nothing": True,
        "deleted": True,
    }


def test_admin_lists_offsets_by_time_and_deletes_records(dialogue):
    assert dialogue("offsets") == {
        "earliest": 0,
        "latest": 51,
        "max_timestamp": 49,
        "by_timestamp": 20,
        "after_the_last": -1,
        "low_watermark": 30,
        "earliest_after_delete": 30,
        "first_read": 30,
        "below_the_start": "_AUTO_OFFSET_RESET",
        "beyond_the_end": "OFFSET_OUT_OF_RANGE",
    }


def test_admin_changes_settings_leaders_and_users(dialogue):
    assert dialogue("administration") == {
        "errors": [None, None, None, "INVALID_CONFIG", "INVALID_CONFIG"],
        "config": ["88000", "delete,compact"],
        "elected": ["ELECTION_NOT_NEEDED"],
        "user": [4096],
    }


def test_admin_describes_the_cluster(dialogue, broker):
    seen = dialogue("cluster")
    assert list(seen["brokers"].values()) == [broker.bootstrap]
    assert str(seen["controller"]) in seen["brokers"]
    assert len(seen["cluster_id"]) == 22


def test_broker_creates_an_unknown_topic_on_first_use(dialogue):
    assert dialogue("unknown_topic") == [0]
