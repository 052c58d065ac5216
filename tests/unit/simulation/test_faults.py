"""The faults of the simulator. Each announced fault happens, and to the nodes that the announcement names."""

from __future__ import annotations

from random import Random

import pytest

from kafkacore.simulation.judge import Judge
from kafkacore.simulation.quorum import QuorumWorld
from kafkacore.simulation.quorum_faults import QuorumFaults
from seeds import SEED


@pytest.mark.parametrize("kind", ["isolate", "split", "one_way"])
def test_fault_cuts_no_node_from_itself(kind: str) -> None:
    world = QuorumWorld(Random(SEED), Judge(), 3, 1)
    begin = getattr(QuorumFaults(world), kind)
    random = Random(SEED)
    for _ in range(100):
        begun = begin(random)
        assert begun is not None
        assert world.cuts
        assert all(source != target for source, target in world.cuts)
        begun[1]()
        assert not world.cuts


def test_fault_cuts_no_link_when_the_quorum_has_one_node() -> None:
    faults = QuorumFaults(QuorumWorld(Random(SEED), Judge(), 1, 0))
    assert faults.one_way(Random(SEED)) is None
    assert faults.split(Random(SEED)) is None
    assert faults.isolate(Random(SEED)) is None
