"""aiokafka: producers, admin clients, and consumers that assign their partitions themselves."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError

from segments import CODECS, partition_batches

FIRST_TIMESTAMP_MS = 1_700_000_000_000


async def produce(broker, topic, count, size=100, **settings):
    """Sends records with keys and headers, some of them with null values, to partition 0. Returns the acknowledged
    offsets."""
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=20, **settings) as producer:
        futures = [
            await producer.send(
                topic, None if n % 10 == 9 else b"v" * size, key=b"k%d" % n, partition=0,
                timestamp_ms=FIRST_TIMESTAMP_MS + n, headers=[("n", b"%d" % n)],
            )
            for n in range(count)
        ]  # fmt: skip
        return [(await future).offset for future in futures]


async def consume(broker, topic, count, offset=0, **settings):
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="none", **settings) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, offset)
        return [await asyncio.wait_for(consumer.getone(), 30) for _ in range(count)]


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_and_keep_their_codec_on_disk(broker, log_dir, topic_name, codec, idempotent):
    async def dialogue():
        kind = None if codec == "none" else codec
        sent = await produce(broker, topic_name, 100, compression_type=kind, enable_idempotence=idempotent)
        return sent, await consume(broker, topic_name, 100, check_crcs=True)

    sent, received = asyncio.run(dialogue())
    assert sent == list(range(100))
    for n, record in enumerate(received):
        assert (record.offset, record.key, record.timestamp) == (n, b"k%d" % n, FIRST_TIMESTAMP_MS + n)
        assert record.value == (None if n % 10 == 9 else b"v" * 100)
        assert record.headers == (("n", b"%d" % n),)
    stored = partition_batches(log_dir, topic_name)
    assert {batch.codec for batch in stored} == {codec}
    assert {batch.producer_id >= 0 for batch in stored} == {idempotent}


def test_consumer_wakes_when_a_record_arrives(broker, topic_name):
    async def dialogue():
        await produce(broker, topic_name, 1)
        waiting = asyncio.create_task(consume(broker, topic_name, 2, fetch_max_wait_ms=20_000))
        await produce(broker, topic_name, 1)
        return await asyncio.wait_for(waiting, 15)

    assert [record.offset for record in asyncio.run(dialogue())] == [0, 1]


def test_broker_takes_big_records_up_to_the_topic_limit(broker, topic_name):
    async def dialogue():
        await produce(broker, topic_name, 5, size=900_000)
        received = await consume(broker, topic_name, 5, max_partition_fetch_bytes=1000)
        with pytest.raises(MessageSizeTooLargeError):
            await produce(broker, topic_name, 1, size=1_100_000, max_request_size=2_000_000)
        return received

    assert [len(record.value) for record in asyncio.run(dialogue())] == [900_000] * 5


def test_admin_creates_topics_lists_offsets_and_deletes_records(broker, topic_name):
    partition = TopicPartition(topic_name, 0)

    async def dialogue():
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        topic = NewTopic(topic_name, 2, 1, topic_configs={"retention.ms": "777777"})
        assert (await admin.create_topics([topic])).topic_errors[0][1] == 0
        assert (await admin.create_topics([topic])).topic_errors[0][1] == 36
        (described,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic_name)])
        values = {entry[0]: entry[1] for entry in described.resources[0][4]}
        assert (values["retention.ms"], values["compression.type"]) == ("777777", "producer")
        change = ConfigResource(ConfigResourceType.TOPIC, topic_name, configs={"retention.ms": "88000"})
        (altered,) = await admin.alter_configs([change])
        assert altered.resources[0][0] == 0
        (described,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic_name)])
        assert {entry[0]: entry[1] for entry in described.resources[0][4]}["retention.ms"] == "88000"
        wrong = ConfigResource(ConfigResourceType.TOPIC, topic_name, configs={"retention.ms": "soon"})
        (altered,) = await admin.alter_configs([wrong])
        assert altered.resources[0][0] == 40
        await admin.create_partitions({topic_name: NewPartitions(3)})
        (shown,) = await admin.describe_topics([topic_name])
        assert len(shown["partitions"]) == 3
        await produce(broker, topic_name, 20)
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="none")
        await consumer.start()
        consumer.assign([partition])
        by_time = await consumer.offsets_for_times({partition: FIRST_TIMESTAMP_MS + 7})
        assert (by_time[partition].offset, by_time[partition].timestamp) == (7, FIRST_TIMESTAMP_MS + 7)
        assert await consumer.offsets_for_times({partition: FIRST_TIMESTAMP_MS * 2}) == {partition: None}
        assert await consumer.end_offsets([partition]) == {partition: 20}
        assert await admin.delete_records({partition: RecordsToDelete(before_offset=6)}) == {partition: 6}
        assert await consumer.beginning_offsets([partition]) == {partition: 6}
        consumer.seek(partition, 2)
        with pytest.raises(OffsetOutOfRangeError):
            await asyncio.wait_for(consumer.getone(), 30)
        await consumer.stop()
        assert (await admin.delete_topics([topic_name])).topic_error_codes[0][1] == 0
        assert topic_name not in await admin.list_topics()
        await admin.close()

    asyncio.run(dialogue())
