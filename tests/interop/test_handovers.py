"""A directory goes from Apache Kafka to us and back, and from us to Apache Kafka and back, and nothing gets lost.

Apache Kafka 3.9 and 4.3, either form of a quorum, one log directory and two, after SIGTERM and after SIGKILL. A few
rows in which every two of these meet; KAFKACORE_HANDOVERS=all walks the whole product.
"""

import os

import pytest

from handovers import OURS, Directory, Story
from pairwise import pairs, pairwise, product

FACTORS = {
    "release": ("3.9", "4.3", "3.9-to-4.3"),
    "quorum": ("static", "dynamic"),
    "directories": ("one", "two"),
    "first": ("apache", "us"),
    "end": ("kill", "stop"),
}
ROWS = product(FACTORS) if os.environ.get("KAFKACORE_HANDOVERS") == "all" else pairwise(FACTORS)


@pytest.fixture
def directory(tmp_path, tools_of_either):
    """`directory(row)` makes one; who has it at the end of a test is stopped."""
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
def test_a_directory_goes_there_and_back(tools_of_either, directory, row):
    """Each side's turn ends by SIGKILL once and by SIGTERM once; the last to have it are we."""
    earlier, later = (f"apache-{row['release'].split('-to-')[at]}" for at in (0, -1))
    turns = [earlier, OURS, later, OURS] if row["first"] == "apache" else [OURS, earlier, OURS, later, OURS]
    ends = ["kill", "kill", "stop", "stop"] if row["end"] == "kill" else ["stop", "stop", "kill", "kill"]
    upgrades = row["release"] == "3.9-to-4.3"
    Story(directory(row), tools_of_either["apache-4.3"], turns, ends[: len(turns) - 1], upgrades=upgrades).run()


def test_every_two_of_the_values_meet_in_a_few_rows():
    few, every = pairwise(FACTORS), product(FACTORS)
    assert set().union(*map(pairs, few)) == set().union(*map(pairs, every))
    assert (len(few), len(every)) == (6, 48)
