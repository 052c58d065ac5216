"""The plan that places replicas: it loads brokers evenly, moves few replicas, and never leaves a partition on fewer
racks than before."""

from collections import Counter
from random import Random

import pytest

from kafkacore.spark.pipelines.placement import TOLERANCE, Partition, PlanError, load, plan, reassignment_json

RACKS = {broker: f"rack-{broker % 3}" for broker in range(9)}


def random_partitions(random: Random, brokers: list[int], count: int) -> list[Partition]:
    made = []
    for number in range(count):
        first = random.choice(brokers)
        replicas = [first, *random.sample([broker for broker in brokers if RACKS[broker] != RACKS[first]], 2)]
        made.append(Partition("orders", number, tuple(replicas), int(random.paretovariate(1.2) * 1000)))
    return made


def applied(before: list[Partition], changed: list[Partition]) -> list[Partition]:
    new = {one.number: one for one in changed}
    return [new.get(one.number, one) for one in before]


def racks_of(one: Partition) -> int:
    return len({RACKS[broker] for broker in one.replicas})


@pytest.mark.parametrize("seed", range(20))
def test_plan_evens_out_bytes_and_leaders_when_brokers_are_uneven(seed: int) -> None:
    random = Random(seed)
    before = random_partitions(random, [0, 1, 2, 3, 4, 5], 300)  # the new brokers 6 to 8 are empty
    changed = plan(before, RACKS)
    was, now = load(before, [], RACKS), load(before, changed, RACKS)
    largest = max(one.size for one in before)
    mean = sum(now.bytes.values()) / len(RACKS)
    assert max(now.bytes.values()) <= max(mean * (1 + TOLERANCE), largest, mean + largest / 2)
    assert max(now.bytes.values()) < max(was.bytes.values())
    assert max(now.leaders.values()) - min(now.leaders.values()) <= 1
    for old, new in zip(before, applied(before, changed), strict=True):
        assert racks_of(new) >= racks_of(old)
        assert len(set(new.replicas)) == len(old.replicas)


def test_plan_moves_no_byte_when_only_leaders_are_uneven() -> None:
    before = [Partition("t", number, (0, 1, 2), 10) for number in range(9)]
    changed = plan(before, {0: None, 1: None, 2: None})
    assert load(before, changed, range(3)).moved == 0
    assert Counter(one.replicas[0] for one in applied(before, changed)) == {0: 3, 1: 3, 2: 3}


def test_plan_is_empty_when_brokers_are_even() -> None:
    before = [Partition("t", number, (number % 3, (number + 1) % 3), 10) for number in range(9)]
    assert plan(before, {0: None, 1: None, 2: None}) == []


def test_plan_hands_leaders_along_a_chain_when_no_direct_hand_over_exists() -> None:
    # Broker 0 shares partitions only with broker 1, and broker 1 only with broker 2. So the plan must pass the surplus
    # of broker 0 on through broker 1.
    before = [Partition("t", number, (0, 1), 1) for number in range(4)]
    before += [Partition("t", 4 + number, (1, 2), 1) for number in range(4)]
    before += [Partition("t", 8, (2, 1), 1)]
    changed = plan(before, {0: "a", 1: "b", 2: "c"})
    leaders = Counter(one.replicas[0] for one in applied(before, changed))
    assert max(leaders.values()) - min(leaders.values()) <= 1


def test_plan_empties_a_broker_when_it_is_drained() -> None:
    before = random_partitions(Random(7), list(RACKS), 200)
    changed = plan(before, RACKS, drained=[4])
    now = load(before, changed, RACKS)
    assert now.bytes[4] == 0 and now.leaders[4] == 0
    assert all(racks_of(new) >= racks_of(old) for old, new in zip(before, applied(before, changed), strict=True))


def test_plan_is_refused_when_too_few_brokers_remain() -> None:
    with pytest.raises(PlanError, match="t-0 has 3 replicas, but only 2 brokers may hold them"):
        plan([Partition("t", 0, (0, 1, 2), 1)], {0: None, 1: None, 2: None}, drained=[0])


def test_plan_is_refused_when_a_broker_is_not_registered() -> None:
    with pytest.raises(PlanError, match="t-0 has a replica on broker 9, which is not registered"):
        plan([Partition("t", 0, (0, 9), 1)], {0: None, 1: None})


def test_reassignment_json_has_the_form_of_kafka_reassign_partitions() -> None:
    assert reassignment_json([Partition("t", 3, (1, 2), 5)]) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 3, "replicas": [1, 2], "log_dirs": ["any", "any"]}],
    }
