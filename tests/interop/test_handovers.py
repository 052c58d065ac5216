"""Apache Kafka and our node take over a directory from each other, in both directions and back. No data is lost.

The rows of the test cover Apache Kafka 3.9 and 4.3, both forms of a quorum, one and two log directories, SIGTERM and
SIGKILL. With KAFKACORE_HANDOVERS=pairs, the rows contain every pair of these values. With `all`, they contain every
combination.
"""

import os

import pytest

from handovers import OURS, Directory, Story
from pairwise import covering, met, product

FACTORS = {
    "release": ("3.9", "4.3", "3.9-to-4.3"),
    "quorum": ("static", "dynamic"),
    "directories": ("one", "two"),
    "first": ("apache", "us"),
    "end": ("kill", "stop"),
}
MEETING = {"each": 1, "pairs": 2, "all": len(FACTORS)}
ROWS = covering(FACTORS, MEETING[os.environ.get("KAFKACORE_HANDOVERS", "each")])


@pytest.fixture
def directory(tmp_path, tools_of_either):
    """Returns a function that makes a directory: `directory(row)`. When the test ends, the fixture kills the node that
    is running in the directory."""
    made = []

    def make(row):
        release = "apache-" + row["release"].partition("-")[0]
        made.append(
            Directory(
                tmp_path, tools_of_either, release=release, maker=OURS if row["end"] == "stop" else release,
                dynamic=row["quorum"] == "dynamic", directories=("one", "two").index(row["directories"]) + 1,
            )
        )  # fmt: skip
        return made[0]

    yield make
    tools_of_either["apache-4.3"].run("java-writes", "forget")
    for each in made:
        if each.child is not None and each.child.alive():
            each.kill()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row.values()))
def test_directory_keeps_everything_when_it_changes_hands_and_comes_back(tools_of_either, directory, row):
    """Each side runs twice. One of its runs ends with SIGKILL and the other with SIGTERM. Our node runs last."""
    earlier, later = (f"apache-{row['release'].split('-to-')[at]}" for at in (0, -1))
    turns = [earlier, OURS, later, OURS] if row["first"] == "apache" else [OURS, earlier, OURS, later, OURS]
    ends = ["kill", "kill", "stop", "stop"] if row["end"] == "kill" else ["stop", "stop", "kill", "kill"]
    upgrades = row["release"] == "3.9-to-4.3"
    Story(directory(row), tools_of_either["apache-4.3"], turns, ends[: len(turns) - 1], upgrades=upgrades).run()


def test_covering_rows_meet_every_combination_of_factors():
    every = product(FACTORS)
    for size in MEETING.values():
        met_in_few, met_in_all = (
            set().union(*(met(row, size) for row in rows)) for rows in (covering(FACTORS, size), every)
        )
        assert met_in_few == met_in_all
    assert [len(covering(FACTORS, size)) for size in MEETING.values()] == [3, 6, len(every)]
