"""librdkafka's idempotent producer can store a record twice, with any kind of broker, if a batch in another partition
is rejected because of its sequence number.

A batch that follows a rejected batch is rejected, too, because its sequence numbers leave a gap. librdkafka then begins
a new producer epoch, and gives new sequence numbers to all unacknowledged records in every partition. If a record was
stored but its acknowledgement was lost, no broker can recognise the record by its new number
(https://github.com/confluentinc/librdkafka/issues/4953). The checker of the torture test allows this case, and nothing
else.
"""

import pytest
from confluent_kafka import Producer

from asking import ask
from kafkacore._fast.record.batch import Batches
from kafkacore.protocol.messages import CreateTopicsRequest
from record_checks import Stored, problems_of_log
from relay import CONCEAL, PASS, REFUSE, Relay
from replicated import fetch, stored

RETRY_MS = 300  # long enough for all answers to arrive before the producer sends a record again


@pytest.fixture
def relay(broker):
    with Relay(broker.bootstrap) as relay:
        yield relay


@pytest.fixture
def producer(broker, relay, topic_name):
    """Returns a producer that sends each record in a separate request. Each of the two partitions already has one
    record."""
    topic = CreateTopicsRequest.CreatableTopic(name=topic_name, num_partitions=2, replication_factor=1)
    answer = ask(broker.bootstrap, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
    assert answer.topics[0].error_code == 0
    producer = Producer({
        "bootstrap.servers": relay.address, "enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1,
        "retry.backoff.ms": RETRY_MS, "retry.backoff.max.ms": RETRY_MS, "log_level": 0,
    })  # fmt: skip
    send(producer, topic_name, [(0, b"0"), (1, b"1")])
    return producer


def send(producer, topic, records):
    errors = []
    for partition, value in records:
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None] * len(records)


def records_of(broker, topic, partition):
    batches = Batches(fetch(broker.bootstrap, topic, partition, 0).records)
    return [stored(batch, record) for batch in batches for record in batch]


def numbers(broker, topic, partition):
    """Returns the partition's records as (value, producer epoch, sequence)."""
    return [(each.value, each.epoch, each.sequence) for each in records_of(broker, topic, partition)]


def test_record_is_stored_once_when_it_is_sent_again_under_its_number(broker, relay, producer, topic_name):
    relay.plan({0: [CONCEAL], 1: [REFUSE]})
    send(producer, topic_name, [(0, b"2"), (1, b"3")])
    assert relay.answers == {0: ["NONE"]}
    assert numbers(broker, topic_name, 0) == [(b"0", 0, 0), (b"2", 0, 1)]
    assert numbers(broker, topic_name, 1) == [(b"1", 0, 0), (b"3", 0, 1)]


def test_record_is_stored_twice_when_another_partition_refuses_a_number(broker, relay, producer, topic_name):
    relay.plan({0: [CONCEAL], 1: [REFUSE, PASS]})
    send(producer, topic_name, [(0, b"2"), (1, b"3"), (1, b"5")])
    assert relay.answers == {0: ["NONE"], 1: ["OUT_OF_ORDER_SEQUENCE_NUMBER"]}
    assert numbers(broker, topic_name, 0) == [(b"0", 0, 0), (b"2", 0, 1), (b"2", 1, 0)]
    assert numbers(broker, topic_name, 1) == [(b"1", 0, 0), (b"3", 1, 0), (b"5", 1, 1)]
    log = records_of(broker, topic_name, 0)
    sent = {"librdkafka": [(0, b"0"), (-1, b"2")]}
    assert list(problems_of_log("p", log, sent, ["librdkafka"])) == []
    assert "p has b'2' twice" in problems_of_log("p", log, sent)
    # If the same records were in one producer epoch, the broker would have made an error.
    log[2] = Stored(2, b"2", log[1].producer_id, 0, 1)
    assert "p has b'2' twice" in problems_of_log("p", log, sent, ["librdkafka"])
