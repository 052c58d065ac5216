"""The plan that places replicas: it loads brokers evenly, moves few replicas, and never leaves a partition on fewer
racks than before. It is better than the proposal of kafka-reassign-partitions, which knows no sizes and no rates."""

from collections import Counter
from random import Random

import pytest

from kafkacore.controller.common.placement import UsableBroker, place
from kafkacore.spark.pipelines.placement import TOLERANCE, Partition, PlanError, load, plan, reassignment_json

RACKS = {broker: f"rack-{broker % 3}" for broker in range(9)}


def random_partitions(random: Random, brokers: list[int], count: int) -> list[Partition]:
    made = []
    for number in range(count):
        first = random.choice(brokers)
        replicas = [first, *random.sample([broker for broker in brokers if RACKS[broker] != RACKS[first]], 2)]
        size, rate = int(random.paretovariate(1.2) * 1000), random.paretovariate(1.2)
        made.append(Partition("orders", number, tuple(replicas), size, rate))
    return made


def applied(before: list[Partition], changed: list[Partition]) -> list[Partition]:
    new = {one.number: one for one in changed}
    return [new.get(one.number, one) for one in before]


def racks_of(one: Partition) -> int:
    return len({RACKS[broker] for broker in one.replicas})


@pytest.mark.parametrize("seed", range(20))
def test_plan_evens_out_bytes_rates_and_leaders_when_brokers_are_uneven(seed: int) -> None:
    random = Random(seed)
    before = random_partitions(random, [0, 1, 2, 3, 4, 5], 300)  # the new brokers 6 to 8 are empty
    changed = plan(before, RACKS)
    was, now = load(before, [], RACKS), load(before, changed, RACKS)
    for values, former, largest in (
        (now.bytes, was.bytes, max(one.size for one in before)),
        (now.rates, was.rates, max(one.rate for one in before)),
    ):
        mean = sum(values.values()) / len(RACKS)
        assert max(values.values()) <= max(mean * (1 + TOLERANCE), largest, mean + largest / 2)
        assert max(values.values()) < max(former.values())
    assert max(now.leaders.values()) - min(now.leaders.values()) <= 1
    for old, new in zip(before, applied(before, changed), strict=True):
        assert racks_of(new) >= racks_of(old)
        assert len(set(new.replicas)) == len(old.replicas)


@pytest.mark.parametrize("seed", range(20))
def test_plan_is_better_than_the_proposal_of_kafka_reassign_partitions(seed: int) -> None:
    random = Random(seed)
    before = random_partitions(random, [0, 1, 2, 3, 4, 5], 300)
    placed = place([UsableBroker(each, RACKS[each], False) for each in RACKS], len(before), 3, random)
    proposed = [one._replace(replicas=tuple(replicas)) for one, replicas in zip(before, placed, strict=True)]
    ours, theirs = load(before, plan(before, RACKS), RACKS), load(before, proposed, RACKS)
    assert ours.moved < theirs.moved * 0.75
    assert max(ours.bytes.values()) < max(theirs.bytes.values())
    assert max(ours.rates.values()) < max(theirs.rates.values())
    assert max(ours.leaders.values()) <= max(theirs.leaders.values())


def test_plan_exchanges_cold_and_hot_replicas_when_no_single_move_helps() -> None:
    # In rack a, broker 0 holds nearly all bytes, and broker 1 gets all records. In rack b, brokers 2 and 3 divide the
    # load in the same way.
    cold = [Partition("cold", number, (0, 2), 100) for number in range(4)]
    hot = [Partition("hot", number, (1, 3), 1, 50.0) for number in range(4)]
    before = [*cold, *hot]
    now = load(before, plan(before, {0: "a", 1: "a", 2: "b", 3: "b"}), range(4))
    assert max(now.bytes.values()) <= 204
    assert max(now.rates.values()) == 100


def test_plan_moves_the_fewest_bytes_when_rates_are_uneven() -> None:
    # A move of either hot partition evens out the rates. The plan moves the one with fewer bytes.
    before = [
        Partition("t", 0, (0,), 30, 10.0), Partition("t", 1, (0,), 20, 10.0), Partition("t", 2, (1,), 50, 0.0),
        Partition("t", 3, (1,), 20, 0.0),
    ]  # fmt: skip
    changed = plan(before, {0: None, 1: None})
    assert load(before, changed, range(2)).rates == {0: 10.0, 1: 10.0}
    assert load(before, changed, range(2)).moved <= 40


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
    with pytest.raises(PlanError, match="must hold 3 replicas of t-0, but only 2 brokers may hold them"):
        plan([Partition("t", 0, (0, 1, 2), 1)], {0: None, 1: None, 2: None}, drained=[0])


def test_plan_is_refused_when_a_drained_broker_does_not_exist() -> None:
    with pytest.raises(PlanError, match="broker 9 cannot be drained: it is not registered and holds no replicas"):
        plan([Partition("t", 0, (0,), 1)], {0: None, 1: None}, drained=[9])


@pytest.mark.parametrize("seed", range(5))
def test_plan_balances_the_live_brokers_and_leaves_a_fenced_one_alone(seed: int) -> None:
    before = random_partitions(Random(seed), [0, 1, 2, 3, 4, 5], 300)
    fenced = [2, 7]  # broker 7 is empty
    after = applied(before, plan(before, dict.fromkeys(RACKS), fenced=fenced))
    for broker in fenced:
        held = {one.number for one in before if broker in one.replicas}
        assert {one.number for one in after if broker in one.replicas} == held
        led = {one.number for one in before if one.replicas[0] == broker}
        assert {one.number for one in after if one.replicas[0] == broker} == led
    now = load(after, [], RACKS)
    live = [now.bytes[broker] for broker in RACKS if broker not in fenced]
    mean = sum(live) / len(live)
    largest = max(one.size for one in before)
    assert max(live) <= max(mean * (1 + TOLERANCE), largest, mean + largest / 2)


def test_plan_moves_replicas_from_a_fenced_broker_when_it_is_drained() -> None:
    before = random_partitions(Random(7), [0, 1, 2, 3, 4, 5], 100)
    now = load(before, plan(before, RACKS, drained=[4], fenced=[4, 5]), RACKS)
    assert now.bytes[4] == 0
    assert now.bytes[5] == load(before, [], RACKS).bytes[5]


def test_plan_is_refused_when_only_a_fenced_broker_could_take_a_drained_replica() -> None:
    with pytest.raises(PlanError, match="must hold 2 replicas of t-0, but only 1 brokers may hold them"):
        plan([Partition("t", 0, (0, 1), 1)], {0: None, 1: None, 2: None}, drained=[0], fenced=[2])


def test_plan_moves_replicas_to_another_rack_when_their_broker_is_not_registered() -> None:
    before = [Partition("t", number, (0, 9), 10) for number in range(4)]
    after = applied(before, plan(before, {0: "a", 1: "a", 2: "b"}))
    assert all(2 in one.replicas and 9 not in one.replicas for one in after)


def test_replica_stays_on_an_unregistered_broker_when_no_live_broker_may_take_it() -> None:
    before = [Partition("t", 0, (0, 1, 9), 10), Partition("t", 1, (9,), 10)]
    after = applied(before, plan(before, {0: None, 1: None, 2: None}, fenced=[2]))
    assert set(after[0].replicas) == {0, 1, 9}
    assert after[1].replicas[0] in (0, 1)


def test_reassignment_json_has_the_form_of_kafka_reassign_partitions() -> None:
    assert reassignment_json([Partition("t", 3, (1, 2), 5)]) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 3, "replicas": [1, 2], "log_dirs": ["any", "any"]}],
    }
