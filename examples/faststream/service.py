"""A FastStream service that answers each name with a greeting."""

from __future__ import annotations

from faststream.kafka import KafkaBroker


def make(bootstrap: str) -> KafkaBroker:
    broker = KafkaBroker(bootstrap)

    @broker.subscriber("names", auto_offset_reset="earliest")
    @broker.publisher("greetings")
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    return broker
