"""aiokafka, in plain asyncio; with pytest-asyncio or anyio the fixtures are used in the same way."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from kafkacore.testing import Broker


async def shout(bootstrap: str, source: str, target: str, count: int) -> None:
    """The program: everything that comes goes on in capital letters."""
    consumer = AIOKafkaConsumer(
        source, bootstrap_servers=bootstrap, group_id="shouters", auto_offset_reset="earliest", enable_auto_commit=False
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    async with consumer, producer:
        for _ in range(count):
            message = await consumer.getone()
            await producer.send_and_wait(target, message.value.upper())
            await consumer.commit()


def test_everything_is_shouted(kafka, kafka_topic):
    target = kafka.create_topic(f"{kafka_topic}.loud")
    for word in ("one", "two"):
        kafka.produce(kafka_topic, word)
    asyncio.run(shout(kafka.bootstrap, kafka_topic, target, 2))
    assert kafka.log(target).values() == [b"ONE", b"TWO"]


def test_a_broker_of_ones_own_within_a_loop():
    async def use() -> None:
        async with Broker(topics=["in", "out"], record=True) as broker:
            await asyncio.to_thread(broker.produce, "in", "hello")
            with broker.drop("Produce", when="after", times=1, client_id=None):
                await asyncio.wait_for(shout(broker.bootstrap, "in", "out", 1), 30)
            # The first answer never came: the producer, which is not idempotent, has sent it again.
            assert broker.log("out").values() == [b"HELLO", b"HELLO"]
            assert broker.requests.of("OffsetCommit", where=lambda each: each.error is None)

    asyncio.run(use())
