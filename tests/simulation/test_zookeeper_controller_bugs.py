"""Random histories of a cluster, in which all invariants must hold. If a bug is planted in the controller, some
invariant must fail."""

import os

import pytest
from tests.support.controller_stories import run_story
from tests.support.planted_controllers import BUGS

STORIES = int(os.environ.get("KAFKACORE_CONTROLLER_STORIES", "20"))
HUNT = 150  # the bug must show within this number of histories
# The seed of the first history, chosen so that `make test` is short. Other seeds also find the bug.
BEGIN = {"state_captured_when_queued": 30}


@pytest.mark.parametrize("first", range(0, STORIES, 10))
def test_invariants_hold_in_random_lives_of_a_cluster(first):
    for seed in range(first, first + 10):
        run_story(seed)


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_found(name):
    """The test also runs the same history without the bug, which must then succeed."""
    begin = BEGIN.get(name, 0)
    for seed in range(begin, begin + HUNT):
        try:
            with BUGS[name]():
                run_story(seed)
        except AssertionError:
            run_story(seed)
            return
    pytest.fail(f"{HUNT} histories did not show the bug {name}")


def test_story_is_the_same_when_its_seed_is():
    worlds = [run_story(3) for _ in range(2)]
    assert worlds[0].requests == worlds[1].requests
    assert worlds[0].schedule.now_ns == worlds[1].schedule.now_ns
