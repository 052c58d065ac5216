"""To which partition of `__consumer_offsets` a group belongs."""

from __future__ import annotations

import pytest

from kafkacore.server.coordinator_keys import java_hash


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello world", 1794106052),
        ("polygenelubricants", 0),  # its hash is the smallest int, which has no absolute value
        ("drumwood boulderhead", 0),  # its hash is 0
        ("\U0001f600", 31 * 0xD83D + 0xDE00),  # the name consists of two UTF-16 code units
    ],
)
def test_partition_of_a_group_follows_javas_hash(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_negative_hash_counts_by_its_absolute_value() -> None:
    assert java_hash("zzzzzz") == 685785664
