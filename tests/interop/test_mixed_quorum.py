"""Controllers of ours and of Apache Kafka vote in one quorum (KIP-595, KIP-631, KIP-853).

The test kills the active controller with SIGKILL, so that each implementation leads in turn. It creates topics under
each leader. No topic may be lost, and all metadata logs must contain the same bytes.
"""

import re
import subprocess
from functools import partial

import pytest
from confluent_kafka import Producer

import quorums
from asking import ask
from brokers import APACHE
from kafka_tools import Outcome
from kafkacore.protocol import apis
from kafkacore.protocol.messages import AlterPartitionReassignmentsRequest, ApiVersionsRequest
from kafkacore.server import handlers
from processes import ROOT
from quorums import OURS, MixedQuorum

pytestmark = pytest.mark.timeout(300)


def kinds(release, ours):
    """Returns three controllers, of which `ours` are kafkacore's, by node id."""
    return {node_id: OURS if node_id <= ours else release for node_id in (1, 2, 3)}


def change_voters(quorum, run, *arguments):
    """Runs a command of metadata-quorum until it succeeds. The leader refuses the change until the new voter has caught
    up."""

    def done():
        outcome = run("--bootstrap-controller", quorum.addresses[quorum.leader()], *arguments)
        return outcome.exit == 0 or print(outcome)

    quorum.wait(done, " ".join(map(str, arguments)))


def run_ours(*arguments):
    command = [ROOT / ".venv" / "bin" / "kafkacore", *arguments]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


ours = partial(run_ours, "metadata-quorum")


@pytest.fixture
def mixed_quorum(tools_of_either, tmp_path):
    """Returns a function that formats and starts a quorum: `mixed_quorum("apache-4.3", ours=2, dynamic=True)`."""
    started = []

    def start(release, *, dynamic, ours=None, first=None, **options):
        """Starts a quorum. `ours` is the number of kafkacore controllers among the three voters. Alternatively, `first`
        lists the implementation that each initial voter runs."""
        controllers = kinds(release, ours) if first is None else first
        quorum = MixedQuorum(tmp_path / "quorum", controllers, tools_of_either, dynamic=dynamic, **options)
        started.append(quorum)
        quorum.format(".".join(APACHE[release].split(".")[:2]))
        return quorum.start()

    yield start
    for quorum in started:
        quorum.close()


@pytest.mark.parametrize(
    ("release", "ours", "dynamic"),
    [
        ("apache-4.3", 1, True),
        ("apache-4.3", 2, False),
        ("apache-3.9", 1, False),
        ("apache-3.9", 2, True),
    ],
)
def test_each_kind_leads_in_turn_and_the_metadata_logs_agree(mixed_quorum, release, ours, dynamic):
    quorum = mixed_quorum(release, ours=ours, dynamic=dynamic)
    names = []
    for of_ours in (True, False, True):
        quorum.make_leader_of_kind(of_ours)
        names.append(quorum.create_topic())
        quorum.wait_visible(names)
    end = quorum.wait_equal()
    quorum.assert_logs_agree(end)


@pytest.mark.parametrize("release", APACHE)
@pytest.mark.parametrize(("ours", "broker"), [(3, "theirs"), (0, "ours")], ids=["our-controllers", "their-controllers"])
def test_broker_of_one_kind_serves_under_controllers_of_the_other(mixed_quorum, release, ours, broker):
    quorum = mixed_quorum(release, ours=ours, dynamic=True, broker=OURS if broker == "ours" else release)
    name = quorum.create_topic()
    quorum.wait_visible([name])
    producer = Producer({"bootstrap.servers": quorum.bootstrap, "acks": "all"})
    outcome = []
    producer.produce(name, b"value", partition=1, on_delivery=lambda error, message: outcome.append(error))
    assert producer.flush(60) == 0
    assert outcome == [None]
    quorum.controllers[quorum.leader()].kill()
    later = quorum.create_topic()
    quorum.wait_visible([name, later])
    quorum.assert_logs_agree(quorum.wait_equal())


def advertised(address):
    """Returns the lowest and the highest version of each API that a node advertises."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return {each.api_key: (each.min_version, each.max_version) for each in ask(address, request, 4).api_keys}


def test_our_broker_offers_the_versions_that_the_active_controller_supports(mixed_quorum, tools_of_either, tmp_path):
    """Apache Kafka 3.9 knows no version 1 of AlterPartitionReassignments, which newer tools use if they can."""
    quorum = mixed_quorum("apache-3.9", ours=1, dynamic=True)
    quorum.wait_visible([quorum.create_topic()])
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "topic-1", "partition": 0, "replicas": [100]}]}')
    execute = ("--bootstrap-server", quorum.bootstrap, "--execute", "--reassignment-json-file", plan)
    own = apis.api_versions_for("broker", frozenset(handlers.BROKER))
    request = AlterPartitionReassignmentsRequest(timeout_ms=20_000)
    for of_ours in (False, True, False):
        leader = quorum.make_leader_of_kind(of_ours)
        common = {
            each.api_key: (each.min_version, each.max_version)
            for each in apis.with_controller(own, advertised(quorum.addresses[leader]))
        }
        assert common[request.API_KEY] == ((0, 1) if of_ours else (0, 0))
        if of_ours:
            assert ask(quorum.bootstrap, request, 1).error_code == 0
        else:
            # A client that has asked for the versions earlier loses its connection, and asks again.
            with pytest.raises(ConnectionError, match="the connection was closed"):
                ask(quorum.bootstrap, request, 1)
        assert advertised(quorum.bootstrap) == common
        tools_of_either["apache-4.3"].run("kafka-reassign-partitions", *execute)
        assert run_ours("reassign-partitions", *execute).exit == 0


@pytest.mark.parametrize("release", APACHE)
@pytest.mark.parametrize("tool", ["our-tool", "kafkas-tool"])
@pytest.mark.parametrize("leader", ["we-lead", "they-lead"])
def test_voters_of_both_kinds_are_added_and_removed(mixed_quorum, tools_of_either, release, tool, leader):
    first, second = (OURS, release) if leader == "we-lead" else (release, OURS)
    quorum = mixed_quorum(release, dynamic=True, first={1: first}, later={2: second, 3: OURS})
    run = ours if tool == "our-tool" else partial(tools_of_either[release].attempt, "kafka-metadata-quorum")
    names = [quorum.create_topic()]
    for node_id in (2, 3):
        quorum.start_later(node_id)
        properties = quorum.controllers[node_id].properties
        change_voters(quorum, run, "--command-config", properties, "add-controller")
        names.append(quorum.create_topic())
    voters = quorum.voters()
    assert set(voters) == {1, 2, 3}
    leader_id = quorum.leader()
    change_voters(
        quorum, run, "remove-controller", "--controller-id", leader_id, "--controller-directory-id", voters[leader_id]
    )
    quorum.next_leader(leader_id)
    assert set(quorum.voters()) == {1, 2, 3} - {leader_id}
    quorum.controllers[leader_id].kill()
    names.append(quorum.create_topic())
    quorum.wait_visible(names)
    quorum.assert_logs_agree(quorum.wait_equal())


@pytest.mark.parametrize(("first", "joins"), [("apache-4.3", OURS), (OURS, "apache-4.3")], ids=["ours", "theirs"])
def test_controller_joins_a_quorum_of_the_other_kind_by_itself(mixed_quorum, first, joins):
    """KIP-1186. The leader answers before the change is committed, as Apache Kafka has done since 4.2."""
    quorum = mixed_quorum(
        "apache-4.3",
        dynamic=True,
        first={1: first},
        later={2: joins},
        overrides={"controller.quorum.auto.join.enable": "true"},
    )
    quorum.start_later(2)
    quorum.wait(lambda: set(quorum.voters()) == {1, 2}, "controller 2 among the voters")
    quorum.wait_visible([quorum.create_topic()])
    quorum.assert_logs_agree(quorum.wait_equal())


def test_wait_shows_each_member_when_it_runs_out(mixed_quorum, monkeypatch):
    quorum = mixed_quorum("apache-4.3", dynamic=True, first={1: OURS})
    quorum.wait(lambda: "unattached -> follower" in quorum.broker.seen(), "a broker that follows")
    quorum.controllers[1].kill()
    monkeypatch.setattr(quorums, "LIMIT_S", 0.1)
    with pytest.raises(TimeoutError, match="in vain for: an active controller") as raised:
        quorum.leader()
    text = str(raised.value)
    assert re.search(r'kafkacore 1: exited with -9; quorum-state: {.*"leaderEpoch":1.*', text)
    assert "kafkacore.raft: epoch 1: candidate -> leader" in text
    of_the_broker = text[text.index("kafkacore 100: ") :].partition("\n--- ")[0]
    assert re.match(r"kafkacore 100: pid \d+ is alive; quorum-state: .*\n", of_the_broker)
    assert "unattached -> follower" in of_the_broker
