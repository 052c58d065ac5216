"""Keys of hash tables that an attacker chooses. Clients choose producer ids and topic names, and can create topics
until a topic id has the property that they want. Such keys must not slow down a table. The tests look up keys that
collide under an unkeyed hash, and count the entries that each lookup passes."""

from __future__ import annotations

import itertools

import numpy as np

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_table import Table
from kafkacore._fast.log.producers import longest_chain

WORD = 1 << 64
GOLDEN = 0x9E3779B97F4A7C15
# If a random function distributes some thousands of keys, fewer than one in 10^9 tables has a bucket with this many.
FEW = 20


def ids_that_collide_when_multiplied(count: int) -> list[int]:
    """Returns producer ids whose product with the golden ratio has zeros in the bits that a multiplicative hash uses as
    the bucket."""
    inverse = pow(GOLDEN, -1, WORD)
    products = (high << 54 | low for low in range(1, count) for high in range(1 << 10))
    ids = (product * inverse % WORD for product in products)
    return list(itertools.islice((each for each in ids if each < 1 << 63), count))


def topics_that_collide_under_fnv(count: int) -> list[tuple[Uuid, str]]:
    """Returns topic ids and names whose FNV-1a hash, folded as an earlier version of the table did, has zeros in the
    bits for the shard and the bucket."""
    found: list[tuple[Uuid, str]] = []
    for begin in range(0, 1 << 30, 1 << 20):
        numbers = np.arange(begin, begin + (1 << 20), dtype=np.uint64)
        digits = [(numbers >> np.uint64(4 * each) & np.uint64(15)) + np.uint64(97) for each in range(16)]
        hashed = np.full(len(numbers), 0xCBF29CE484222325, dtype=np.uint64)
        for digit in digits:
            hashed = (hashed ^ digit) * np.uint64(0x100000001B3)
        hashed ^= hashed >> np.uint64(29)
        for at in np.flatnonzero((hashed & np.uint64(0x7000001FF)) == 0):
            name = bytes(int(digit[at]) for digit in digits)
            found.append((Uuid(name), name.decode()))
        if len(found) >= count:
            return found[:count]
    raise AssertionError("too few")


def test_producer_ids_crafted_against_a_multiplicative_hash_spread_over_the_buckets() -> None:
    ids = ids_that_collide_when_multiplied(4000)
    assert len(set(ids)) == 4000
    assert longest_chain(ids) < FEW
    assert longest_chain(range(4000)) < FEW


def test_topics_crafted_against_fnv_spread_over_the_table() -> None:
    """Also counts the probes for neighbouring keys, because with linear probing, a single cluster slows down every
    topic behind it."""
    topics = topics_that_collide_under_fnv(200)
    made = Table().changed([(name, topic_id, [None]) for topic_id, name in topics])
    assert len(made) == 200
    assert made.longest_probe() < FEW
    assert all(made.find(name, 1) is False and made.find(topic_id, 1) is False for topic_id, name in topics)
