"""Compares whole brokers side by side. Modules of the tests start the brokers."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
