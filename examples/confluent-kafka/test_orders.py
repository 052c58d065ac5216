"""kafkacore provides the fixtures `kafka`, `kafka_topic` and `kafka_broker`. They need no setup."""

import json

import pytest
from confluent_kafka import Producer
from orders import DEAD_LETTERS, OrderBook


@pytest.fixture
def book(kafka_broker, kafka_topic):
    made = OrderBook(kafka_broker.bootstrap, kafka_topic)
    yield made
    made.close()


def test_order_is_booked_and_committed(kafka_broker, kafka_topic, book):
    kafka_broker.produce(kafka_topic, json.dumps({"item": "tea", "count": 2}))
    assert book.book_next()
    assert book.booked == [{"item": "tea", "count": 2}]
    assert kafka_broker.groups["order-book"].offsets == {(kafka_topic, 0): 1}


@pytest.mark.kafka(topics=[DEAD_LETTERS])
def test_unreadable_order_goes_to_the_dead_letters(kafka_broker, kafka_topic, book):
    kafka_broker.produce(kafka_topic, "no order")
    assert book.book_next()
    assert kafka_broker.log(DEAD_LETTERS).values() == [b"no order"]


def test_producer_retries_when_the_broker_refuses(kafka, kafka_topic):
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "retry.backoff.ms": 10})
    with kafka.refuse("Produce", error="NOT_ENOUGH_REPLICAS", times=3) as fault:
        producer.produce(kafka_topic, b"important")
        assert producer.flush(10) == 0
    assert fault.hits == 3
    assert kafka.log(kafka_topic).values() == [b"important"]


@pytest.mark.kafka(configs={"log.retention.hours": 24})
def test_orders_are_deleted_after_a_day(kafka_broker, kafka_topic):
    kafka_broker.produce(kafka_topic, "yesterday's")
    kafka_broker.clock.advance(days=1, minutes=10)
    assert kafka_broker.log(kafka_topic).values() == []
