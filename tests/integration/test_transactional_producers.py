"""A transactional producer learns immediately that this broker does not support transactions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer

from asking import ask
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FindCoordinatorRequest, InitProducerIdRequest

# By default, clients retry for a minute or two. A client that gives up immediately needs a tenth of this limit.
AT_ONCE_S = 15
ERROR = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def confluent(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", "transaction.timeout.ms": 60_000})
    producer.init_transactions(60)


def kafka_python(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="t", max_block_ms=60_000)
    try:
        producer.init_transactions()
    finally:
        producer.close(timeout=1)


def aiokafka(bootstrap: str) -> None:
    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="t")
        try:
            await asyncio.wait_for(producer.start(), 60)
        finally:
            await producer.stop()

    asyncio.run(start())


@pytest.mark.parametrize("client", [confluent, kafka_python, aiokafka])
def test_transactional_producer_fails_at_once(client: Callable[[str], None], start_node: Any) -> None:
    node = start_node()
    began = time.monotonic()
    with pytest.raises(Exception, match=r"(?i)transactional.?id|TransactionalId") as failed:
        client(node.bootstrap)
    assert time.monotonic() - began < AT_ONCE_S, f"late: {failed.value!r}"
    if client is confluent:
        assert isinstance(failed.value, KafkaException)
        assert failed.value.args[0].fatal()


def test_transactional_id_is_refused_with_the_reason(start_node: Any) -> None:
    node = start_node()
    old = ask(node.bootstrap, FindCoordinatorRequest(key_type=1, key="t"), 3)
    (new,) = ask(node.bootstrap, FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 6).coordinators
    for answer in (old, new):
        assert answer.error_code == ERROR
        assert "Transactions are not supported by this broker" in answer.error_message
    answer = ask(node.bootstrap, InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), 5)
    assert (answer.error_code, answer.producer_id) == (ERROR, -1)
