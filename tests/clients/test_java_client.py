"""The Java producer and the Java consumer of Apache Kafka 4.3 and 3.9, with each codec."""

import json

import pytest

from segments import CODECS, partition_batches

FIRST_TIMESTAMP_MS = 1_700_000_000_000


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", ["all", "1"])
def test_records_come_back_and_keep_their_codec_on_disk(tools, broker, log_dir, topic_name, codec, acks):
    server = f"bootstrap.servers={broker.bootstrap}"
    idempotent = acks == "all"
    sent = tools.run(
        "java-client", "produce", topic_name, 100, 300, server, f"compression.type={codec}", "linger.ms=20",
        f"acks={acks}", f"enable.idempotence={str(idempotent).lower()}",
    )  # fmt: skip
    assert sent.lines == [str(offset) for offset in range(100)]
    received = tools.run("java-client", "consume", topic_name, 100, server)
    assert received.lines == [
        f"{n}\t{FIRST_TIMESTAMP_MS + n}\tk{n}\t{-1 if n % 10 == 9 else 300}\tn={n},none=null," for n in range(100)
    ]
    stored = partition_batches(log_dir, topic_name)
    assert {batch.codec for batch in stored} == {codec}
    assert {batch.producer_id >= 0 for batch in stored} == {idempotent}


def test_consumer_reads_on_while_a_producer_adds_records(tools, broker, topic_name):
    server = f"bootstrap.servers={broker.bootstrap}"
    for round_number in range(3):
        tools.run("java-client", "produce", topic_name, 50, 10, server)
        received = tools.run("java-client", "consume", topic_name, 50 * (round_number + 1), server)
        assert len(received.lines) == 50 * (round_number + 1)


def test_consumer_reads_records_larger_than_one_fetch(tools, broker, topic_name):
    server = f"bootstrap.servers={broker.bootstrap}"
    tools.run("java-client", "produce", topic_name, 9, 900_000, server)
    received = tools.run("java-client", "consume", topic_name, 9, server, "max.partition.fetch.bytes=1000")
    assert [line.split("\t")[3] for line in received.lines] == ["900000"] * 9


RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


@pytest.mark.parametrize("assignor", [RANGE, COOPERATIVE])
def test_remaining_member_takes_all_partitions_when_the_other_leaves(tools, broker, topic_name, assignor):
    server = f"bootstrap.servers={broker.bootstrap}"
    tools.run(
        "kafka-topics", "--bootstrap-server", broker.bootstrap, "--create", "--topic", topic_name, "--partitions", 4
    )
    tools.run("java-client", "produce", topic_name, 30, 10, server)
    seen = tools.run(
        "java-client", "group", topic_name, 4, server, f"group.id={topic_name}", "enable.auto.commit=false",
        f"partition.assignment.strategy={assignor}", "heartbeat.interval.ms=100",
    )  # fmt: skip
    first, second, last = map(json.loads, seen.lines[:3])
    assert sorted(first + second) == last == [0, 1, 2, 3]
    assert len(first) == len(second) == 2
    assert seen.lines[3:] == ["0 at 30", "1 at 0", "2 at 0", "3 at 0"]
