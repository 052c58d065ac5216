"""The source of random numbers: the system, or a seed that replays a run exactly."""

from __future__ import annotations

import random


def randomness(seed: int | None = None) -> random.Random:
    """A source of random numbers for one node. Without a seed it is the operating system's, which nobody can
    predict."""
    return random.SystemRandom() if seed is None else random.Random(seed)


def jittered(source: random.Random, base: float, share: float) -> float:
    """`base` plus or minus a random share of it, at most `share` (Kafka uses 0.2 for reconnects)."""
    return base * (1.0 - share + 2.0 * share * source.random())


def backoff_ms(source: random.Random, attempt: int, base_ms: float, max_ms: float) -> float:
    """Kafka's exponential backoff: doubled with each attempt (from 0), with a jitter of 20 %, at most `max_ms`."""
    return min(jittered(source, base_ms * float(1 << min(attempt, 30)), 0.2), max_ms)
