"""Searches for bugs planted in elections, metadata logs, controllers and brokers. Each bug must be found.

KAFKACORE_HUNTS sets the number of random searches for each bug.
"""

from __future__ import annotations

import pytest

from hunts import TIMEOUT_S, hunt_down
from kafkacore.simulation.planted import HUNTED, PlantedBug
from kafkacore.simulation.planted_replication import REPLICATION_BUGS


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("bug", [bug for bug in HUNTED if bug not in REPLICATION_BUGS], ids=lambda bug: bug.name)
def test_planted_bug_is_found_when_seeds_are_random(bug: PlantedBug) -> None:
    hunt_down(bug)
