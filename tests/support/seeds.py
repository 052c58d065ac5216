"""The seed of all random choices in tests.

`make test` always uses the same seed, except for a few runs of the simulator with new seeds. KAFKACORE_SEED=N sets
another seed. KAFKACORE_SEED=new, which `make fuzz` sets, chooses a new seed for each run. A failing test prints its
seed, so that the run can be repeated.
"""

from __future__ import annotations

import os
import random

CHOSEN = os.environ.get("KAFKACORE_SEED", "1")
SEED = random.SystemRandom().getrandbits(32) if CHOSEN == "new" else int(CHOSEN)
