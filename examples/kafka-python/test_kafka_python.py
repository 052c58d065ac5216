"""Tests kafka-python with kafkacore's fixtures."""

from kafka import KafkaConsumer, KafkaProducer, TopicPartition


def test_consumer_receives_the_record_that_was_sent(kafka, kafka_topic):
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    sent = producer.send(kafka_topic, key=b"key", value=b"value").get(10)
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=10_000
    )
    consumer.assign([TopicPartition(kafka_topic, 0)])
    received = next(consumer)
    consumer.close()
    assert (received.offset, received.key, received.value) == (sent.offset, b"key", b"value")


def test_group_commits_its_offset(kafka, kafka_topic):
    kafka.produce(kafka_topic, "work")
    consumer = KafkaConsumer(
        kafka_topic, bootstrap_servers=kafka.bootstrap, group_id="workers", auto_offset_reset="earliest"
    )
    assert next(consumer).value == b"work"
    consumer.commit()
    group = kafka.groups["workers"]
    assert group.state == "Stable"
    assert group.offsets == {(kafka_topic, 0): 1}
    consumer.close()
