"""The one seed of all random choices in tests.

`make test` uses the same seed every time, so that its result depends on the tree alone. KAFKACORE_SEED=N uses another
one, and KAFKACORE_SEED=new a new one in each run, as `make fuzz` does. A failing test prints the seed that repeats it.
"""

from __future__ import annotations

import os
import random

CHOSEN = os.environ.get("KAFKACORE_SEED", "1")
SEED = random.SystemRandom().getrandbits(32) if CHOSEN == "new" else int(CHOSEN)
