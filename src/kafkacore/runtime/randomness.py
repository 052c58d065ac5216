"""The source of random numbers: the operating system, or a seed that makes a run repeatable."""

from __future__ import annotations

import random


def randomness(seed: int | None = None) -> random.Random:
    """Returns a source of random numbers for one node. Without a seed, the numbers come from the operating system and
    are unpredictable."""
    return random.SystemRandom() if seed is None else random.Random(seed)


def jittered(source: random.Random, base: float, share: float) -> float:
    """Returns `base` plus or minus a random amount of up to `share` of `base` (Kafka uses 0.2 for reconnects)."""
    return base * (1.0 - share + 2.0 * share * source.random())


def backoff_ms(source: random.Random, attempt: int, base_ms: float, max_ms: float) -> float:
    """Returns Kafka's exponential backoff. It doubles with each attempt, counted from 0, has a jitter of 20 %, and is
    at most `max_ms`."""
    return min(jittered(source, base_ms * float(1 << min(attempt, 30)), 0.2), max_ms)
