"""Changes to a quorum with controllers of both implementations. Static voters become dynamic voters, new replicas load
snapshots, and some nodes stop answering but do not exit (KIP-595, KIP-630, KIP-853)."""

import itertools
import subprocess

import pytest

from brokers import APACHE
from namespaces import Namespaces
from processes import ROOT
from quorums import OURS, MixedQuorum

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def network():
    made = Namespaces()
    yield made
    made.close()


@pytest.fixture
def mixed_quorum(tools_of_either, tmp_path):
    """Returns a function that formats and starts a quorum: `mixed_quorum("apache-4.3", {1: OURS, ...})`."""
    started = []

    def start(release, kinds, **options):
        quorum = MixedQuorum(tmp_path / "quorum", kinds, tools_of_either, **options)
        started.append(quorum)
        quorum.format(".".join(APACHE[release].split(".")[:2]))
        return quorum.start()

    yield start
    for quorum in started:
        for member in (quorum.broker, *quorum.controllers.values()):
            if member.alive():
                member.resume()
        quorum.close()


def upgrade(quorum, tools, tool):
    """Repeats the upgrade until the active controller accepts it. The controller must first have received a message
    from every voter."""
    run = tools["apache-4.3"].attempt

    def done():
        address = quorum.addresses[quorum.leader()]
        arguments = ["--bootstrap-controller", address, "upgrade", "--feature", "kraft.version=1"]
        if tool == "kafkas-tool":
            outcome = run("kafka-features", *arguments)
            return outcome.exit == 0 or print(outcome)
        command = [ROOT / ".venv" / "bin" / "kafkacore", "features", *arguments]
        finished = subprocess.run(
            [str(each) for each in command], capture_output=True, text=True, timeout=60, check=False
        )
        return finished.returncode == 0 or print(finished)

    quorum.wait(done, "kraft.version 1")


@pytest.mark.parametrize(("of_ours", "tool"), [(True, "kafkas-tool"), (False, "kafkas-tool"), (True, "our-tool")])
def test_static_voters_of_both_kinds_become_dynamic(mixed_quorum, tools_of_either, of_ours, tool):
    quorum = mixed_quorum("apache-4.3", {1: OURS, 2: "apache-4.3", 3: OURS if of_ours else "apache-4.3"}, dynamic=False)
    quorum.make_leader_of_kind(of_ours)
    names = [quorum.create_topic()]
    upgrade(quorum, tools_of_either, tool)

    def known():
        described = quorum.describe(quorum.leader())
        return described and all(bytes(each.replica_directory_id) != bytes(16) for each in described.current_voters)

    quorum.wait(known, "the directory ids of all voters")
    directories = quorum.voters()
    leader = quorum.leader()
    quorum.controllers[leader].kill()
    quorum.next_leader(leader)
    names.append(quorum.create_topic())
    quorum.wait_visible(names)
    assert quorum.voters() == directories
    quorum.controllers[leader].start(quorum.addresses[leader])
    quorum.assert_logs_agree(quorum.wait_equal())


# Each batch is larger than this limit. So every replica makes a snapshot after each batch, and deletes the log below
# its last snapshot.
SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "1",
    "metadata.max.retention.bytes": "1",
    "metadata.log.segment.bytes": "8388608",
    "metadata.log.segment.ms": "1000",
}


@pytest.mark.parametrize("release", APACHE)
@pytest.mark.parametrize("leader", ["we-lead", "they-lead"])
def test_new_replica_learns_the_metadata_from_a_snapshot_of_the_other_kind(mixed_quorum, release, leader):
    first, second = (OURS, release) if leader == "we-lead" else (release, OURS)
    quorum = mixed_quorum(release, {1: first}, dynamic=True, later={2: second}, overrides=SNAPSHOTS)
    names = [quorum.create_topic() for _ in range(5)]
    metadata = quorum.controllers[1].data / "__cluster_metadata-0"

    def snapshots():
        found = [path.name for path in metadata.glob("*.checkpoint")]
        return [name for name in found if not name.startswith("0000000000000000000")] if names else []

    quorum.wait(snapshots, "a snapshot of the leader")

    def no_log_from_the_start():
        quorum.create_topic()
        return min(int(path.stem) for path in metadata.glob("*.log")) > 0

    quorum.wait(no_log_from_the_start, "a log of the leader that begins after its snapshot")
    quorum.start_later(2)

    def followed():
        described = quorum.describe(1)
        ends = [each.log_end_offset for each in described.observers if each.replica_id == 2] if described else []
        return ends and ends[0] >= described.high_watermark - 1

    quorum.wait(followed, "the new replica at the leader's end")
    other = quorum.controllers[2].data / "__cluster_metadata-0"
    assert all(int(path.stem) > 0 for path in other.glob("*.log")), "the new replica must load a snapshot, not the log"
    ids = {path.name for path in other.glob("*.checkpoint")} - {"00000000000000000000-0000000000.checkpoint"}
    assert ids, "the new replica must have loaded a snapshot"
    names.append(quorum.create_topic())
    quorum.wait_visible(names)
    # Snapshots constantly replace the log, so only a few batches may remain.
    quorum.assert_logs_agree(quorum.describe(1).high_watermark, at_least=1)


FORMS = [
    ("apache-3.9", True, False),
    ("apache-3.9", False, True),
    ("apache-4.3", True, True),
    ("apache-4.3", False, False),
]


@pytest.mark.parametrize(("release", "of_ours", "dynamic"), [
    pytest.param(*each, id=f"{each[0]}-{'we' if each[1] else 'they'}-lead-{'dynamic' if each[2] else 'static'}-voters")
    for each in FORMS
])  # fmt: skip
def test_follower_of_one_kind_takes_over_when_links_of_the_other_are_cut(
    mixed_quorum, network, release, of_ours, dynamic
):
    leading, other = (OURS, release) if of_ours else (release, OURS)
    quorum = mixed_quorum(release, {1: leading, 2: other, 3: other}, dynamic=dynamic, network=network)
    quorum.make_leader_of_kind(of_ours)
    names = [quorum.create_topic()]
    # The broker can still reach all three controllers.
    network.cut([1], [2, 3])
    assert quorum.next_leader(1) in (2, 3)
    described = quorum.describe(1)
    assert described is None or described.leader_id != 1, "a leader that loses its quorum must resign"
    names.append(quorum.create_topic())
    network.heal()
    names.append(quorum.create_topic())
    quorum.wait_visible(names)
    quorum.assert_logs_agree(quorum.wait_equal())


@pytest.mark.parametrize(("release", "of_ours", "dynamic"), [
    (release, of_ours, dynamic)
    for release, of_ours, dynamic in itertools.product(APACHE, (True, False), (True, False))
    if dynamic or (release, of_ours) in (("apache-3.9", False), ("apache-4.3", True))
])  # fmt: skip
def test_quorum_outlives_a_member_that_is_stopped_and_goes_on(mixed_quorum, release, of_ours, dynamic):
    kinds = {1: OURS, 2: release, 3: OURS if of_ours else release}
    quorum = mixed_quorum(release, kinds, dynamic=dynamic)
    quorum.make_leader_of_kind(of_ours)
    names = [quorum.create_topic()]
    # Stops a follower that runs the other implementation, and then the leader.
    leader = quorum.leader()
    follower = next(node_id for node_id, member in quorum.controllers.items() if member.ours != of_ours)
    for stopped in (follower, leader):
        quorum.controllers[stopped].pause()
        try:
            if stopped == leader:
                others = {node_id for node_id in quorum.controllers if node_id != stopped}

                def new_leader(others=others):
                    described = [quorum.describe(node_id) for node_id in others]
                    return any(each and each.leader_id in others for each in described)

                quorum.wait(new_leader, "another leader than the stopped one")
            names.append(quorum.create_topic())
        finally:
            quorum.controllers[stopped].resume()
        names.append(quorum.create_topic())
        quorum.wait_visible(names)
        quorum.wait_equal()
    quorum.assert_logs_agree(quorum.wait_equal())
