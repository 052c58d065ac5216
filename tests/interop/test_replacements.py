"""An operator replaces all brokers of a cluster by brokers of the other kind, and back, as docs/migration.md describes.
Meanwhile an idempotent producer writes and a group reads.

The rows of the test cover both releases, controllers of both kinds, clusters that begin with brokers of either kind,
and both ways of replacement. With KAFKACORE_HANDOVERS=pairs, the rows contain every pair of these values. With `all`,
they contain every combination.
"""

import os

import pytest

from brokers import APACHE
from pairwise import covering
from quorums import OURS
from replacements import GroupReads, Operator, by_directory, by_reassignment, release_of
from replicated import ReplicatedCluster, Writes

FACTORS = {
    "release": tuple(APACHE),
    "controllers": ("our-controllers", "their-controllers"),
    "first": ("theirs-first", "ours-first"),
    "way": ("by-directory", "by-reassignment"),
}
MEETING = {"each": 1, "pairs": 2, "all": len(FACTORS)}
ROWS = covering(FACTORS, MEETING[os.environ.get("KAFKACORE_HANDOVERS", "each")])
PARTITIONS = 3
SETTINGS = {"offsets.topic.replication.factor": "3", "min.insync.replicas": "2"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row.values()))
def test_nothing_is_lost_when_all_brokers_are_replaced_and_come_back(tools_of_either, tmp_path, row):
    release = row["release"]
    first, second = (release, OURS) if row["first"] == "theirs-first" else (OURS, release)
    cluster = ReplicatedCluster(
        tmp_path / "cluster",
        controllers={1: OURS if row["controllers"] == "our-controllers" else release},
        brokers=dict.fromkeys((101, 102, 103), first),
        tools=tools_of_either,
        settings=SETTINGS,
    )
    try:
        cluster.start(release_of(release))
        cluster.create("orders", [[101, 102, 103], [102, 103, 101], [103, 101, 102]], min_insync_replicas="2")
        which = [("orders", partition) for partition in range(PARTITIONS)]
        with GroupReads(cluster, "readers", ["orders"]) as reads:
            with Writes(cluster, which) as writes:
                for kind, ours in ((second, False), (first, True)):
                    operator = Operator(cluster, tools_of_either[release], ours=ours)
                    if row["way"] == "by-directory":
                        by_directory(cluster, operator, kind, writes)
                    else:
                        by_reassignment(cluster, operator, kind, writes, tmp_path)
                    assert {member.kind for member in cluster.brokers.values()} == {kind}
                    assert {state.leader for state in cluster.partitions("orders").values()} == set(cluster.brokers)
            reads.wait_read(writes)
            reads.wait_committed()
        cluster.assert_whole(writes)
        cluster.assert_no_errors()
    finally:
        cluster.close()
