"""The program under test. It books the orders that it reads, and copies messages that are not JSON to a dead letter
topic."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Consumer, Producer

DEAD_LETTERS = "orders.dead"


class OrderBook:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.booked: list[dict[str, Any]] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap,
            "group.id": "order-book",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        })  # fmt: skip
        self._consumer.subscribe([topic])

    def book_next(self, timeout_seconds: float = 10.0) -> bool:
        """Books the next order, then commits its offset. Returns False if no order arrives in time."""
        message = self._consumer.poll(timeout_seconds)
        if message is None or message.error():
            return False
        try:
            self.booked.append(json.loads(message.value()))
        except ValueError:
            self._producer.produce(DEAD_LETTERS, message.value())
            self._producer.flush()
        self._consumer.commit(message, asynchronous=False)
        return True

    def close(self) -> None:
        self._consumer.close()
