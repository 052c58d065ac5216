"""When the controller places replicas, it alternates between racks and between brokers."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kafkacore.controller.common.placement import PlacementError, UsableBroker, place


def brokers(*racks: str | None, fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [UsableBroker(broker_id, rack, broker_id in fenced) for broker_id, rack in enumerate(racks)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("racks", [(None,) * 5, ("a", "b", "c", "a", "b", "c"), ("a", "a", "a", "b"), ("a", None, "b")])
def test_replicas_are_distinct_and_leaders_take_turns(racks: tuple[str | None, ...], seed: int) -> None:
    count = len(racks) * 20
    placed = place(brokers(*racks), count, 3, Random(seed))
    assert len(placed) == count
    assert all(len(set(replicas)) == 3 for replicas in placed)
    if len(set(racks)) in (1, len(racks)):
        assert set(Counter(replicas[0] for replicas in placed).values()) == {20}


@pytest.mark.parametrize("seed", range(5))
def test_every_partition_is_in_as_many_racks_as_possible(seed: int) -> None:
    racks = ("a", "b", "c", "a", "b", "c")
    for replicas in place(brokers(*racks), 60, 3, Random(seed)):
        assert {racks[broker_id] for broker_id in replicas} == {"a", "b", "c"}


@pytest.mark.parametrize("seed", range(5))
def test_fenced_broker_follows_and_does_not_lead(seed: int) -> None:
    placed = place(brokers(None, None, None, fenced=(1,)), 30, 3, Random(seed))
    assert all(replicas[0] != 1 and 1 in replicas for replicas in placed)
    placed = place(brokers(None, None, None, fenced=(1,)), 30, 2, Random(seed))
    assert not any(1 in replicas for replicas in placed)


@pytest.mark.parametrize(
    ("usable", "factor", "words"),
    [
        (brokers(None, None), 3, "only 2 broker"),
        (brokers(None, None, fenced=(0, 1)), 1, "fenced"),
        ([], 1, "fenced"),
        (brokers(None), 0, "must be positive"),
    ],
)
def test_impossible_placement_is_refused(usable: list[UsableBroker], factor: int, words: str) -> None:
    with pytest.raises(PlacementError, match=words):
        place(usable, 1, factor, Random(1))


def test_same_seed_places_the_same() -> None:
    one, other = (place(brokers(*"aabbcc"), 50, 3, Random(9)) for _ in range(2))
    assert one == other
