"""Whole brokers side by side; they are started by what the tests start them with."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
