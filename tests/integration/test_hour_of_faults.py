"""Clusters of real processes with SIGKILL, SIGSTOP, restarts, cut links, full disks and reassignments. Meanwhile
confluent-kafka and the Java client write, and groups read. No acknowledged record is lost, and records stay in order.
No record of an idempotent producer is stored twice in one producer epoch. A group reads a record again only if it had
not committed the record's offset.

librdkafka itself stores some records again in a new epoch. `tests/clients/test_renumbered_records.py` shows that this
happens with Apache Kafka and with our node. So the checker allows it, but requires that each sequence number occurs
once in each epoch.

KAFKACORE_FAULT_SECONDS is the total time for both clusters. KAFKACORE_SEED repeats the order of the faults.
"""

import contextlib
import os

import pytest

from brokers import APACHE, need_jars
from namespaces import possible_network
from quorums import OURS
from record_checks import GroupRecord, Stored, problems_of_log
from replicated import ReplicatedCluster
from seeds import SEED
from torture import RELEASE, SETTINGS, Clients, Faults, create_topics, small_disks

SECONDS = int(os.environ.get("KAFKACORE_FAULT_SECONDS", "60"))
MEMBERS = {
    "combined": {"combined": dict.fromkeys((1, 2, 3), OURS)},
    "apart": {"controllers": dict.fromkeys((1, 2, 3), OURS), "brokers": dict.fromkeys((101, 102, 103), OURS)},
}


@pytest.mark.timeout(SECONDS + 900)
@pytest.mark.parametrize("shape", MEMBERS)
def test_nothing_acknowledged_is_lost_or_doubled_when_nodes_links_and_disks_fail(shape, tmp_path):
    need_jars(APACHE[RELEASE])
    with possible_network() as network, contextlib.ExitStack() as undo:
        cluster = ReplicatedCluster(tmp_path / "cluster", network=network, settings=SETTINGS, **MEMBERS[shape])
        disks = small_disks(cluster.brokers, network, undo)
        undo.callback(cluster.close)
        cluster.start()
        create_topics(cluster)
        with Clients(cluster, tmp_path, SEED) as clients:
            Faults(cluster, clients, SEED, network, disks).run(SECONDS / len(MEMBERS))
        assert list(clients.problems()) == []


SENT = [(offset, b"%d" % offset) for offset in range(6)]
LOG = [Stored(offset, value, 7, 0, offset) for offset, value in SENT]


def moved(*records):
    """Returns these records, with offsets that begin at 0."""
    return [record._replace(offset=offset) for offset, record in enumerate(records)]


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        (LOG[:5], "lost 1 acknowledged records"),
        (moved(*LOG[:2], *LOG[3:]), "lost 1 acknowledged records"),
        (moved(*LOG, LOG[3]), "has b'3' twice"),
        (moved(LOG[1], LOG[0], *LOG[2:]), "in the wrong order"),
        ([record._replace(offset=record.offset + 1) for record in LOG], "but p got an acknowledgement for b'0'"),
        (moved(*LOG, Stored(6, b"never")), "that no broker acknowledged"),
        (moved(*LOG, LOG[5]), "after epoch 0 and sequence 5"),
        (moved(LOG[0], *LOG[2:]), "after epoch 0 and sequence 0"),
        ([LOG[0]._replace(epoch=1), *LOG[1:]], "after epoch 1 and sequence 0"),
        ([LOG[0], *(record._replace(epoch=1) for record in LOG[1:])], "after epoch 0 and sequence 0"),
    ],
)
def test_checker_names_what_is_wrong_when_a_log_differs_from_the_acknowledgements(log, problem):
    assert list(problems_of_log("t-0", LOG, {"p": SENT})) == []
    for renumbering in ((), ["p"]):
        assert any(problem in each for each in problems_of_log("t-0", log, {"p": SENT}, renumbering))


def test_checker_allows_a_record_again_only_from_a_producer_that_numbers_it_anew():
    again = [Stored(offset, b"%d" % (offset - 2), 7, 1, offset - 6) for offset in range(6, 8)]
    twice = [*LOG, *again]
    assert list(problems_of_log("t-0", twice, {"p": SENT}, ["p"])) == []
    assert list(problems_of_log("t-0", twice, {"p": SENT})) != []
    assert list(problems_of_log("t-0", twice, {"p": SENT, "q": []}, ["q"])) != []
    other = [*LOG, *(record._replace(producer_id=8) for record in again)]
    assert "t-0 has b'4' twice" in problems_of_log("t-0", other, {"p": SENT}, ["p"])


def test_checker_of_groups_allows_records_again_only_when_they_were_not_committed():
    group = GroupRecord("g")
    floors = group.assigned([0])
    group.reads(floors, 0, 0, 9)
    group.commits(0, 6)
    other = group.assigned([0])
    group.reads(other, 0, 6, 9)
    assert group.problems == []
    assert group.unread(0, range(12)) == {10, 11}
    group.reads(group.assigned([0]), 0, 5, 9)
    group.reads(other, 0, 9, 9)
    group.reads({}, 0, 10, 10)
    assert len(group.problems) == 3
