"""A delta that stores rows as vectors reports the same rows as one that stores them in a set."""

from __future__ import annotations

import numpy as np

from kafkacore.metadata.delta import MetadataDelta


def delta(*rows: int, freed: tuple[int, ...] = ()) -> MetadataDelta:
    made = MetadataDelta()
    made.change_rows(np.array(rows, np.int64))
    made.freed_rows.update(freed)
    return made


def test_delta_tells_the_rows_of_vectors_when_it_is_asked() -> None:
    made = delta(1, 2)
    made.change_rows(np.array([2, 3]))
    assert made and made.most_rows == 4
    assert made.partition_rows == {1, 2, 3} and made.most_rows == 3
    made.partition_rows.add(7)
    assert made.partition_rows == {1, 2, 3, 7}


def test_delta_drops_freed_rows_of_vectors_when_a_later_one_frees_them() -> None:
    made = delta(1, 2)
    made.add(delta(3, freed=(2,)))
    assert made.partition_rows == {1, 3} and made.freed_rows == {2}


def test_delta_leaves_the_later_one_as_it_was_when_it_adds_it() -> None:
    made, later = MetadataDelta(), delta(4)
    made.add(later)
    made.add(delta(5))
    assert made.partition_rows == {4, 5} and later.partition_rows == {4}
