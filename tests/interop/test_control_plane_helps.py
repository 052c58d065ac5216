"""A short run of `python -m benchmarks.control_plane`. It compares two of our clusters while the handlers of one broker
have a long backlog. One of the clusters has control.plane.listener.name (KIP-291)."""

import statistics

import pytest
from benchmarks.control_plane import consequences, latency
from benchmarks.control_plane.pairs import Pair

from quorums import OURS
from zookeepers import need_zookeeper

pytestmark = pytest.mark.timeout(300)
PROBE_S = 1.0
ATTEMPTS = 3  # a busy machine may delay one broker and not the other


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """Starts a cluster without a control plane and a cluster with one. Both run at the same time, and so on the same
    machine."""
    need_zookeeper()
    path = tmp_path_factory.mktemp("control-plane")
    with Pair(path / "shared", OURS, apart=False) as shared, Pair(path / "apart", OURS, apart=True) as apart:
        yield shared, apart


def one_of_some_attempts(measure, is_better):
    seen = []
    for _ in range(ATTEMPTS):
        seen.append(measure())
        if is_better(seen[-1]):
            return
    pytest.fail(f"the control plane did not help: {seen}")


def test_controller_request_waits_less_by_the_control_plane_when_clients_fill_the_queue(clusters):
    shared, apart = clusters

    def measure():
        waited = latency.measure(shared, "full", PROBE_S, 0) | latency.measure(apart, "full", PROBE_S, 0)
        return {way: statistics.median(found) for way, found in waited.items()}

    # A full queue delays requests on the priority connections, but not those on the control plane.
    one_of_some_attempts(measure, lambda p50_ms: p50_ms["apart"] < min(p50_ms["shared"] / 2, p50_ms["lane"]))


def test_former_leader_hears_of_the_new_one_sooner_by_the_control_plane_when_clients_fill_the_queue(clusters):
    def measure():
        return [consequences.leave(pair) for pair in clusters]

    def is_better(found):
        late, soon = found
        names = ("stale_ms", "lost_acks_1")
        return all(soon[name][0] < late[name][0] / 2 for name in names)

    one_of_some_attempts(measure, is_better)
