"""Searches for bugs planted in native code. Each bug must be found. Only the build of `ci/sanitize.sh planted` contains
these bugs.

KAFKACORE_HUNTS sets the number of random searches for each bug.
"""

from __future__ import annotations

import pytest

from hunts import TIMEOUT_S, hunt_down
from kafkacore._fast.base.debug_checks import PLANTED
from kafkacore.simulation.planted import NATIVE_HUNTED, PlantedBug


@pytest.mark.skipif(not PLANTED, reason="only the build of ci/sanitize.sh planted contains bugs of native code")
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("bug", NATIVE_HUNTED, ids=lambda bug: bug.name)
def test_planted_bug_is_found_when_seeds_are_random(bug: PlantedBug) -> None:
    hunt_down(bug)
