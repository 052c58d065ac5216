"""Tests aiokafka with plain asyncio. The fixtures work the same way with pytest-asyncio or anyio."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from kafkacore.testing import Broker


async def shout(bootstrap: str, source: str, target: str, count: int) -> None:
    """The program under test. Copies `count` messages from `source` to `target` in capital letters."""
    consumer = AIOKafkaConsumer(
        source, bootstrap_servers=bootstrap, group_id="shouters", auto_offset_reset="earliest", enable_auto_commit=False
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    async with consumer, producer:
        for _ in range(count):
            message = await consumer.getone()
            await producer.send_and_wait(target, message.value.upper())
            await consumer.commit()


def test_program_copies_each_message_in_capitals(kafka, kafka_topic):
    target = kafka.create_topic(f"{kafka_topic}.loud")
    for word in ("one", "two"):
        kafka.produce(kafka_topic, word)
    asyncio.run(shout(kafka.bootstrap, kafka_topic, target, 2))
    assert kafka.log(target).values() == [b"ONE", b"TWO"]


def test_producer_sends_again_when_the_answer_is_lost():
    async def use() -> None:
        async with Broker(topics=["in", "out"], record=True) as broker:
            await asyncio.to_thread(broker.produce, "in", "hello")
            with broker.drop("Produce", when="after", times=1, client_id=None):
                await asyncio.wait_for(shout(broker.bootstrap, "in", "out", 1), 30)
            # The broker dropped the first answer. The producer is not idempotent, so the record is stored twice.
            assert broker.log("out").values() == [b"HELLO", b"HELLO"]
            assert broker.requests.of("OffsetCommit", where=lambda each: each.error is None)

    asyncio.run(use())
