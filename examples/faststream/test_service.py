"""Runs the service against a real broker, with the serialisation, offsets and retries that FastStream's TestKafkaBroker
leaves out."""

import asyncio

import pytest
from service import make


@pytest.mark.kafka(topics=["names", "greetings"])
def test_service_greets_each_name(kafka_broker):
    async def serve() -> list:
        async with make(kafka_broker.bootstrap) as service:
            await service.start()
            await service.publish("Ada", topic="names")
            return await asyncio.to_thread(kafka_broker.consume, "greetings", timeout_seconds=20)

    assert [each.value for each in asyncio.run(serve())] == [b"Hello, Ada!"]
