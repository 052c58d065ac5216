"""What logs remember of their producers. Native code uses it; Python counts."""

from collections.abc import Iterable

def live_count() -> int:
    """Producers that logs of this process remember."""

def longest_chain(producer_ids: Iterable[int]) -> int:
    """How many producers the fullest bucket holds of a table with these ids; tests bound it."""
