"""The producers that logs know. Native code uses them; Python only counts them."""

from collections.abc import Iterable

def live_count() -> int:
    """Returns the number of producers that the logs of this process know."""

def longest_chain(producer_ids: Iterable[int]) -> int:
    """Returns the number of producers in the fullest bucket of a table with these ids. Tests check its limit."""
