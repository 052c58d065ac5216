"""A FastStream service: names come in, greetings go out."""

from __future__ import annotations

from faststream.kafka import KafkaBroker


def make(bootstrap: str) -> KafkaBroker:
    broker = KafkaBroker(bootstrap)

    @broker.subscriber("names", auto_offset_reset="earliest")
    @broker.publisher("greetings")
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    return broker
