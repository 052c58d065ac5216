"""Runs every input of the corpus through its fuzz target, and then, for some time, inputs that it has changed.
`ci/fuzz.sh` fuzzes with coverage as a guide.

KAFKACORE_FUZZ_SECONDS (2 for each target) limits the time. KAFKACORE_SEED repeats a run, and a failure prints the seed.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz_targets import TARGETS
from mutated_bytes import mutated
from seeds import SEED

CORPUS = Path(__file__).parent / "corpus"
SECONDS = float(os.environ.get("KAFKACORE_FUZZ_SECONDS", "2"))


@pytest.fixture
def quiet() -> Iterator[None]:
    """Suppresses the log lines that recovery would write for each input."""
    logger = logging.getLogger("kafkacore")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.timeout(60 + 2 * SECONDS)
def test_target_accepts_any_bytes_without_a_failure(name: str, quiet: None) -> None:
    target, rng = TARGETS[name], random.Random(SEED)
    inputs = [*target.seeds(), *(path.read_bytes() for path in sorted((CORPUS / name).glob("*")))]
    for data in inputs:
        target.run(data)
    until, runs = time.monotonic() + SECONDS, 0
    while time.monotonic() < until:
        changed = mutated(rng, rng.choice(inputs), inputs)
        data = target.repair(changed) if rng.random() < 0.7 else bytes(changed)
        try:
            target.run(data)
        except Exception as error:
            raise AssertionError(f"KAFKACORE_SEED={SEED}, run {runs}: {data.hex()}") from error
        runs += 1
    print(f"\n{name}: {len(inputs)} inputs, {runs} changed ones, KAFKACORE_SEED={SEED}")
