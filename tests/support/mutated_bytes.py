"""Breaks bytes in the ways that fuzzers use."""

from __future__ import annotations

import random
from typing import Final

LONGEST: Final = 1 << 18
INTERESTING: Final = (0, 1, -1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, -(1 << 31), (1 << 63) - 1)


def mutated(rng: random.Random, data: bytes, others: list[bytes]) -> bytearray:
    """Returns `data` with a few random changes. One kind of change replaces the end of `data` with the end of an item
    of `others`."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        at = rng.randrange(len(changed) + 1) if rng.random() < 0.6 else rng.randrange(min(len(changed), 90) + 1)
        kind = rng.randrange(9)
        if kind == 0:
            del changed[at:]
        elif kind == 1:
            changed[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 2:
            del changed[at : at + rng.choice((1, 2, 4, 8, 61))]
        elif kind == 3 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 4:
            size = rng.choice((1, 2, 4, 8))
            value = rng.choice((*INTERESTING, len(changed), len(changed) - at))
            changed[at : at + size] = (value % (1 << size * 8)).to_bytes(size)
        elif kind == 5 and at < len(changed):
            changed[at] = (changed[at] + rng.choice((-2, -1, 1, 2))) % 256
        elif kind == 6:
            other = rng.choice(others)
            changed[at:] = other[rng.randrange(len(other) + 1) :]
        elif kind == 7:
            size = rng.randrange(1, 33)
            changed[at:at] = changed[at : at + size]
        else:
            changed[at : at + 1] = rng.choice((b"\xff" * 9 + b"\x7f", b"\xff\xff\xff\xff\x0f", b"\x80\x00", b"\x01"))
    return changed[:LONGEST]
