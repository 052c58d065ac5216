"""The one seed of whatever a test chooses at random.

`make test` chooses the same every time, so that what it says depends on the tree alone. KAFKACORE_SEED=N chooses
otherwise, KAFKACORE_SEED=new anew in each run, as `make fuzz` does; a failing test prints the seed that repeats it.
"""

from __future__ import annotations

import os
import random

CHOSEN = os.environ.get("KAFKACORE_SEED", "1")
SEED = random.SystemRandom().getrandbits(32) if CHOSEN == "new" else int(CHOSEN)
