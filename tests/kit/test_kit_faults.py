"""Faults that a test injects: what they do, which clients they affect, and how often they happen. They leave nothing
behind.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time

import pytest
from confluent_kafka import KafkaException, Producer

from kafkacore.network.client import Disconnected, NodeClient
from kafkacore.protocol import apis
from kafkacore.protocol.errors import KafkaError
from kafkacore.protocol.messages import (
    ApiVersionsRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)
from kafkacore.testing import Broker
from kafkacore.testing.lookup import UnknownName
from processes import wait_until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def broker():
    with Broker(topics=["t", "other"], configs={"auto.create.topics.enable": False}) as made:
        yield made


def ask(broker, request, version=None, client_id="asker"):
    async def once():
        host, _, port = broker.bootstrap.rpartition(":")
        client = NodeClient(host, int(port), client_id)
        try:
            return await client.request(request, version, 10_000)
        finally:
            await client.close()

    return asyncio.run(once())


def fetch(*topics, max_wait_ms=0):
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        topics=[FetchRequest.FetchTopic(topic=name, partitions=[part]) for name in topics],
    )


def test_refusal_lasts_for_the_ordered_number_of_times(broker) -> None:
    fault = broker.refuse("Produce", error="NOT_ENOUGH_REPLICAS", times=2)
    for hits in (1, 2):
        with pytest.raises(KafkaError) as caught:
            broker.produce("t", "x")
        assert (caught.value.code, caught.value.retriable, fault.hits) == (19, True, hits)
    assert broker.produce("t", "x") == 0  # the broker has not executed any part of the refused requests
    assert (fault.hits, fault.is_over, broker.faults()) == (2, True, [])


def test_retrying_client_succeeds_after_refusals(broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 1, "enable.idempotence": True})
    failures = []
    with broker.refuse("Produce", error="NOT_LEADER_OR_FOLLOWER", times=3) as fault:
        producer.produce("t", b"x", on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(20) == 0
    assert failures == [None]
    assert fault.hits == 3
    assert broker.log("t").values() == [b"x"]


def test_fault_ends_with_its_block_and_processors_serve_again(broker) -> None:
    with broker.refuse("Fetch", error="KAFKA_STORAGE_ERROR"):
        answer = ask(broker, fetch("t"), 12)
        assert answer.responses[0].partitions[0].error_code == 56 or answer.error_code == 56
    assert ask(broker, fetch("t"), 12).responses[0].partitions[0].error_code == 0
    plane = broker.node.broker.plane
    assert plane._answer is plane._handlers


def test_fault_hits_only_the_named_client(broker) -> None:
    broker.refuse("Metadata", error="LEADER_NOT_AVAILABLE", client_id="unlucky")
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
    assert ask(broker, asked, client_id="unlucky").topics[0].error_code == 5
    assert ask(broker, asked, client_id="lucky").topics[0].error_code == 0


def test_refusal_hits_only_the_named_topic(broker) -> None:
    broker.refuse("Fetch", error="UNKNOWN_LEADER_EPOCH", topic="t")
    # The error comes immediately. The broker does not wait for records of the other topic.
    answer = ask(broker, fetch("t", "other", max_wait_ms=30_000), 12)
    assert [each.partitions[0].error_code for each in answer.responses if each.topic == "t"] == [75]
    broker.produce("other", "there")
    answer = ask(broker, fetch("t", "other", max_wait_ms=30_000), 12)
    told = {each.topic: each.partitions[0] for each in answer.responses}
    assert told["t"].error_code == 75
    assert told["other"].error_code == 0
    assert told["other"].records
    with broker.refuse("Produce", error="TOPIC_AUTHORIZATION_FAILED", topic="t") as fault:
        with pytest.raises(KafkaError, match="not authorized"):
            broker.produce("t", "x")
        assert broker.produce("other", "x") == 1
        assert fault.hits == 1


def test_fault_by_topic_hits_requests_with_topic_ids_too(broker) -> None:
    broker.refuse("ListOffsets", error="OFFSET_NOT_AVAILABLE", topic="t")
    broker.refuse("Fetch", error="OFFSET_NOT_AVAILABLE", topic="t")
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[part])])
    assert ask(broker, asked).topics[0].partitions[0].error_code == 78
    by_id = fetch("t")
    by_id.topics[0].topic_id = broker.node.broker.context.image.topic("t").topic_id
    by_id.topics[0].topic = ""
    assert ask(broker, by_id).responses[0].partitions[0].error_code == 78


def test_refused_producer_without_acks_loses_its_connection(broker) -> None:
    broker.refuse("Produce", error="NOT_ENOUGH_REPLICAS")
    from kafkacore._fast.record.batch import RecordBatchBuilder

    batch = RecordBatchBuilder()
    batch.append(0, None, b"x")
    data = ProduceRequest.PartitionProduceData(index=0, records=batch.build())
    request = ProduceRequest(acks=0, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[data])])
    with pytest.raises(Disconnected):
        ask(broker, request, 9)
    assert broker.log("t").end_offset == 0


def test_refused_metadata_still_names_the_brokers(broker) -> None:
    broker.refuse("Metadata", error="UNKNOWN_TOPIC_OR_PARTITION", topic="t")
    answer = ask(broker, MetadataRequest(topics=None))
    assert {each.name: each.error_code for each in answer.topics} == {"t": 3, "other": 0}
    assert len(answer.brokers) == 1


def test_api_versions_can_be_refused_and_processors_answer_it_again(broker) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with broker.refuse("ApiVersions", error="UNSUPPORTED_VERSION", client_id="asker"), pytest.raises(Disconnected):
        ask(broker, request)
    assert ask(broker, request).error_code == 0


def test_delay_follows_the_clock_of_the_broker() -> None:
    with Broker(topics=["t"], time="frozen") as broker:

        async def produce():
            waiting = asyncio.ensure_future(asyncio.to_thread(broker.produce, "t", "late"))
            await asyncio.to_thread(fault.wait_for_hits)
            assert broker.log("t").end_offset == 0
            await asyncio.to_thread(broker.clock.advance, seconds=59)
            assert not waiting.done()
            await asyncio.to_thread(broker.clock.advance, seconds=1)
            return await asyncio.wait_for(waiting, 10)

        with broker.delay("Produce", seconds=60, times=1) as fault:
            assert asyncio.run(produce()) == 0


def test_delayed_request_goes_on_when_the_delay_is_ended(broker) -> None:
    async def produce():
        fault = broker.delay("Produce", seconds=3600)
        waiting = asyncio.ensure_future(asyncio.to_thread(broker.produce, "t", "x"))
        await asyncio.to_thread(fault.wait_for_hits)
        await asyncio.to_thread(fault.end)
        return await asyncio.wait_for(waiting, 10)

    assert asyncio.run(produce()) == 0


def test_delay_adds_to_other_faults(broker) -> None:
    broker.delay("Produce", seconds=0.05)
    broker.delay("Produce", seconds=0.05)
    broker.refuse("Produce", error="REQUEST_TIMED_OUT")
    started = time.monotonic()
    with pytest.raises(KafkaError, match="timed out"):
        broker.produce("t", "x")
    assert time.monotonic() - started >= 0.1


@pytest.mark.parametrize(("when", "end_offset"), [("before", 0), ("after", 1)])
def test_connection_is_dropped_before_or_after_the_work(broker, when, end_offset) -> None:
    with broker.drop("Produce", when=when, times=1) as fault, pytest.raises(ConnectionError):
        broker.produce("t", "x")
    assert fault.hits == 1
    assert broker.log("t").end_offset == end_offset


@pytest.mark.parametrize("size_bytes", [0, 3, 10])
def test_torn_answer_ends_at_the_ordered_byte(broker, size_bytes) -> None:
    broker.tear("ApiVersions", bytes=size_bytes)
    frame = apis.encode_request(0, 77, "raw", ApiVersionsRequest())
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as raw:
        raw.sendall(struct.pack(">i", len(frame)) + frame)
        received = b""
        while data := raw.recv(100):
            received += data
    assert len(received) == size_bytes
    if size_bytes == 10:
        assert struct.unpack_from(">i", received)[0] > 100  # the prefix is the size of the whole answer
        assert received[4:8] == (77).to_bytes(4, "big")


def test_torn_answer_keeps_the_work(broker) -> None:
    with broker.tear("Produce", bytes=8, times=1), pytest.raises(ConnectionError):
        broker.produce("t", "x")
    assert broker.log("t").values() == [b"x"]


def test_full_disk_takes_its_directory_offline_until_a_restart(broker) -> None:
    broker.produce("t", "fits")
    with broker.fill_disk(free_bytes=10) as fault:
        with pytest.raises(KafkaError) as caught:
            broker.produce("t", "does not fit")
        assert caught.value.code == 56
        assert fault.hits >= 1
        wait_until(lambda: "every log directory has failed" in str(broker.failure))
    broker.restart()
    assert broker.failure is None
    assert broker.produce("t", "fits again") == 1
    assert broker.log("t").values() == [b"fits", b"fits again"]


def test_disk_fails_only_the_named_operations(broker) -> None:
    broker.produce("t", "x")
    broker.fail_disk("read")
    broker.produce("t", "writes go on")
    broker.reset()
    broker.fail_disk("write")
    with pytest.raises(KafkaError) as caught:
        broker.produce("t", "y")
    assert caught.value.code == 56
    broker.restart()
    assert broker.faults() == []
    assert broker.produce("t", "z") == 2


def test_each_disk_fault_ends_by_itself(broker) -> None:
    broker.produce("t", "x")
    syncs = broker.fail_disk("sync")
    everything = broker.fail_disk("sync", "names")
    full = broker.fill_disk(free_bytes=1 << 20)
    everything.end()
    assert broker.faults() == [syncs, full]
    broker.produce("t", "writes go on")
    full.end()
    assert syncs.hits == 0
    broker.node.broker.replicas.by_name("t", 0).flush_soon()
    syncs.wait_for_hits()
    with pytest.raises(TimeoutError, match="did not happen 1000 times within"):
        syncs.wait_for_hits(1000, timeout_seconds=0.01)


def test_reset_ends_all_faults(broker) -> None:
    broker.refuse("Produce", error="NOT_ENOUGH_REPLICAS")
    broker.drop("Fetch")
    broker.fill_disk()
    assert len(broker.faults()) == 3
    broker.reset()
    assert broker.faults() == []
    assert broker.produce("t", "x") == 0
    assert broker.consume("t")[0].value == b"x"


def test_wrong_name_is_refused_with_similar_names(broker) -> None:
    with pytest.raises(UnknownName, match="'Prodce'; do you mean Produce"):
        broker.drop("Prodce")
    with pytest.raises(UnknownName, match="do you mean NOT_ENOUGH_REPLICAS or"):
        broker.refuse("produce", error="NOT_ENOUGH_REPLICA")
    with pytest.raises(UnknownName, match="a request cannot be refused with NONE"):
        broker.refuse("produce", error=0)
    with pytest.raises(UnknownName, match="no API has the key 5000"):
        broker.drop(5000)
    with pytest.raises(ValueError, match="cannot fail by topic"):
        broker.refuse("ApiVersions", error="UNSUPPORTED_VERSION", topic="t")
    with pytest.raises(ValueError, match="at least once"):
        broker.refuse("Fetch", error=1, times=0)
    with pytest.raises(ValueError, match="'before' or 'after'"):
        broker.drop("Fetch", when="never")
    with pytest.raises(ValueError, match="do you mean write"):
        broker.fail_disk("writes")
    assert broker.faults() == []


def test_delivery_fails_in_the_client_when_it_never_succeeds(broker) -> None:
    broker.refuse("Produce", error="NOT_ENOUGH_REPLICAS")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 300, "retry.backoff.ms": 10})
    failures = []
    producer.produce("t", b"x", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(10) == 0
    assert isinstance(KafkaException(failures[0]), KafkaException)
    assert failures[0] is not None
    assert broker.log("t").end_offset == 0
