"""The producers that logs remember. Native code uses them; Python only counts them."""

from collections.abc import Iterable

def live_count() -> int:
    """Number of producers that the logs of this process remember."""

def longest_chain(producer_ids: Iterable[int]) -> int:
    """Number of producers in the fullest bucket of a table with these ids; tests bound it."""
