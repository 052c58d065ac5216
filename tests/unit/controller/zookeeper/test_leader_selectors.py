import pytest

from kafkacore.controller.zookeeper.leader_selectors import (
    Chosen,
    controlled_shutdown_leader,
    offline_partition_leader,
    preferred_replica_leader,
    reassigned_partition_leader,
)


@pytest.mark.parametrize(
    ("replicas", "isr", "live", "unclean", "chosen"),
    [
        ((1, 2, 3), (1, 2, 3), {1, 2, 3}, False, Chosen(1, (1, 2, 3))),
        ((1, 2, 3), (1, 2, 3), {2, 3}, False, Chosen(2, (2, 3))),
        # The order of the replica list decides, not the order of the ISR.
        ((1, 2, 3), (3, 2), {2, 3}, False, Chosen(2, (3, 2))),
        ((1, 2, 3), (1,), {2, 3}, False, None),
        ((1, 2, 3), (1,), {2, 3}, True, Chosen(2, (2,), unclean=True)),
        # A replica in the ISR is preferred, even if a replica outside the ISR comes earlier in the list.
        ((1, 2, 3), (1, 3), {2, 3}, True, Chosen(3, (3,))),
        ((1, 2, 3), (1, 2, 3), set(), True, None),
        ((), (), {1}, True, None),
    ],
)
def test_offline_partition_leader_is_the_first_live_member_of_the_isr(replicas, isr, live, unclean, chosen):
    assert offline_partition_leader(replicas, isr, live, unclean) == chosen


@pytest.mark.parametrize(
    ("target", "isr", "live", "chosen"),
    [
        ((4, 5), (1, 2, 4, 5), {1, 2, 4, 5}, Chosen(4, (1, 2, 4, 5))),
        ((4, 5), (1, 2, 5), {1, 2, 4, 5}, Chosen(5, (1, 2, 5))),
        ((4, 5), (4, 5, 1), {1, 5}, Chosen(5, (4, 5, 1))),
        ((4, 5), (1, 2), {1, 2, 4, 5}, None),
    ],
)
def test_reassigned_partition_leader_comes_from_the_target(target, isr, live, chosen):
    assert reassigned_partition_leader(target, isr, live) == chosen


@pytest.mark.parametrize(
    ("replicas", "isr", "live", "chosen"),
    [
        ((1, 2), (2, 1), {1, 2}, Chosen(1, (2, 1))),
        ((1, 2), (2,), {1, 2}, None),
        ((1, 2), (1, 2), {2}, None),
        ((), (), set(), None),
    ],
)
def test_preferred_replica_leader_is_the_first_replica_or_nobody(replicas, isr, live, chosen):
    assert preferred_replica_leader(replicas, isr, live) == chosen


@pytest.mark.parametrize(
    ("replicas", "isr", "present", "leaving", "chosen"),
    [
        ((1, 2, 3), (1, 2, 3), {1, 2, 3}, {1}, Chosen(2, (2, 3))),
        # A dead member stays in the ISR until the controller handles its failure.
        ((1, 2, 3), (1, 2, 3), {1, 3}, {1}, Chosen(3, (2, 3))),
        ((1, 2, 3), (1, 2, 3), {1, 2, 3}, {1, 2}, Chosen(3, (3,))),
        ((1, 2, 3), (1,), {1, 2, 3}, {1}, None),
    ],
)
def test_controlled_shutdown_leader_is_nobody_who_leaves(replicas, isr, present, leaving, chosen):
    assert controlled_shutdown_leader(replicas, isr, present, leaving) == chosen
