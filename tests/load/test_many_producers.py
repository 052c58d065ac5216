"""A log finds its producers just as fast if a client has chosen their ids with bad intent."""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import count, islice

from attacks import Line, batch, produce
from brokers import Node
from kafkacore.protocol.errors import ErrorCode

GOLDEN = 0x9E3779B97F4A7C15  # the usual factor of a multiplicative hash
WORD = 1 << 64
SHUFFLED = random.Random(1)
IDS = 15_000


def colliding_ids() -> Iterator[int]:
    """Returns producer ids whose product with the golden ratio is small. So its upper bits, which usually select the
    bucket, are all zero."""
    inverse = pow(GOLDEN, -1, WORD)
    return (crafted for number in count(1) if (crafted := number * inverse % WORD) < WORD // 2)


def seconds_for(node: Node, producer_ids: Sequence[int]) -> float:
    """Sends one Produce for each of these producers, one after another on one connection. Returns how long that
    takes."""
    frames = b"".join(produce("attacked", [(0, batch(producer_id=each))]).frame() for each in producer_ids)
    last = produce("attacked", [(0, batch())])
    with Line(node.bootstrap) as line:
        sender = threading.Thread(target=line.send, args=(frames,), daemon=True)
        began_s = time.perf_counter()
        sender.start()
        for _ in producer_ids:
            line.receive()
        taken_s = time.perf_counter() - began_s
        sender.join()
        appended = line.ask(last).responses[0].partition_responses[0]
    assert appended.error_code == ErrorCode.NONE
    return taken_s


def test_produce_keeps_its_speed_when_producer_ids_are_crafted_to_collide(node: Node) -> None:
    ordinary_s = seconds_for(node, [SHUFFLED.getrandbits(62) for _ in range(IDS)])
    crafted_s = seconds_for(node, list(islice(colliding_ids(), IDS)))
    assert crafted_s < max(1.0, 4 * ordinary_s)
