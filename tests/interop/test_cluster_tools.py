"""When `kafkacore metadata-quorum`, `features` and `cluster` describe a node, they print the same as Apache Kafka's
tools.
"""

import re
import subprocess

import pytest

from brokers import Node
from processes import ROOT


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = Node(tmp_path_factory.mktemp("tools") / "node")
    yield node
    node.stop()


@pytest.fixture(params=["broker", "controller"])
def endpoint(node, request):
    if request.param == "broker":
        return "--bootstrap-server", node.bootstrap
    return "--bootstrap-controller", node.controller


def ours(command, *arguments):
    program = [ROOT / ".venv" / "bin" / "kafkacore", command, *arguments]
    return subprocess.run([str(word) for word in program], capture_output=True, text=True, timeout=60, check=False)


def timeless(text):
    """Returns the text without the values that differ between two calls to a running node."""
    text = re.sub(r"\d+ ms ago *|\b\d{13} *", "TIME", text)
    return re.sub(r"(HighWatermark: +|Epoch: |-_]{22}\t|[\w-]{22}\t)\d+ *", r"\1N", text)


@pytest.mark.parametrize("form", [("--status",), ("--replication",), ("--replication", "--human-readable")])
def test_metadata_quorum_describes_as_kafkas_tool_does(tools, endpoint, form):
    theirs = tools.run("kafka-metadata-quorum", *endpoint, "describe", *form)
    found = ours("metadata-quorum", *endpoint, "describe", *form)
    assert (found.returncode, found.stderr) == (0, "")
    assert timeless(found.stdout) == timeless(theirs.out)
    assert "1" in theirs.out


def test_features_describes_as_kafkas_tool_does(tools, endpoint):
    theirs = tools.run("kafka-features", *endpoint, "describe")
    found = ours("features", *endpoint, "describe")
    assert (found.returncode, found.stderr) == (0, "")
    assert timeless(found.stdout) == timeless(theirs.out)
    assert "metadata.version" in theirs.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("upgrade", "--feature", "eligible.leader.replicas.version=1", "--dry-run"),
        ("upgrade", "--feature", "eligible.leader.replicas.version=1"),
        ("upgrade", "--feature", "metadata.version=99"),
        ("upgrade", "--feature", "metadata.version=99", "--feature", "kraft.version=1"),
        ("downgrade", "--feature", "metadata.version=22"),
        ("downgrade", "--feature", "metadata.version=22", "--unsafe", "--dry-run"),
        ("disable", "--feature", "nonsense.version"),
        ("version-mapping",),
        ("version-mapping", "--release-version", "4.0-IV1"),
        ("version-mapping", "--release-version", "3.9"),
        ("feature-dependencies", "--feature", "metadata.version=25", "--feature", "transaction.version=2"),
        ("feature-dependencies", "--feature", "eligible.leader.replicas.version=1"),
    ],
    ids=" ".join,
)
def test_features_answers_as_kafkas_tool_does(tools, endpoint, arguments):
    theirs = tools.attempt("kafka-features", *endpoint, *arguments)
    found = ours("features", *endpoint, *arguments)
    assert (found.stdout, found.returncode) == (theirs.out, theirs.exit)
    assert found.stderr.removeprefix("kafkacore: ").strip() == theirs.err.strip()


@pytest.mark.parametrize("command", ["cluster-id", "list-endpoints"])
def test_cluster_prints_as_kafkas_tool_does(tools, endpoint, command):
    theirs = tools.run("kafka-cluster", command, *endpoint)
    found = ours("cluster", command, *endpoint)
    assert (found.stdout, found.stderr, found.returncode) == (theirs.out, "", 0)


def test_cluster_lists_fenced_brokers_as_kafkas_tool_does(tools, node):
    arguments = ("list-endpoints", "--include-fenced-brokers", "--bootstrap-server", node.bootstrap)
    theirs = tools.run("kafka-cluster", *arguments)
    assert ours("cluster", *arguments).stdout == theirs.out


def test_unregister_fails_when_the_broker_is_unknown(tools, endpoint):
    arguments = ("unregister", "--id", 7, *endpoint)
    theirs = tools.attempt("kafka-cluster", *arguments)
    found = ours("cluster", *arguments)
    assert (found.returncode, theirs.exit) == (1, 1)
    assert "Broker ID 7 is not currently registered" in found.stderr
    assert "Broker ID 7 is not currently registered" in theirs.err


@pytest.mark.parametrize(
    "words",
    [
        ("cluster", "cluster-id", "ENDPOINT"),
        ("metadata-quorum", "ENDPOINT", "describe", "--status"),
    ],
)
@pytest.mark.parametrize("kind", ["broker", "controller"])
def test_option_with_the_address_of_the_other_kind_of_node_is_named(node, words, kind):
    option = {"broker": "--bootstrap-server", "controller": "--bootstrap-controller"}[kind]
    address, other = (node.controller, "controller") if kind == "broker" else (node.bootstrap, "broker")
    command, *arguments = words
    at = arguments.index("ENDPOINT")
    found = ours(command, *arguments[:at], option, address, *arguments[at + 1 :])
    assert found.returncode == 1
    assert found.stderr == f"kafkacore: {option} {address} names a {other}, but this option needs {kind}s\n"


@pytest.mark.parametrize(
    "words",
    [
        ("cluster", "unregister", "--id", "99999999999", "--bootstrap-server"),
        (
            "leader-election",
            "--election-type",
            "preferred",
            "--topic",
            "t",
            "--partition=9999999999",
            "--bootstrap-server",
        ),
    ],
)
def test_number_that_no_request_can_hold_is_refused_at_once(node, words):
    found = ours(*words, node.bootstrap)
    assert found.returncode == 1
    assert re.fullmatch(r"kafkacore: \w+Request\.\S+: out of range for its type\n", found.stderr)


def test_verification_that_asks_a_controller_needs_brokers(node):
    found = ours("replica-verification", "--bootstrap-server", node.controller)
    assert found.returncode == 1
    assert found.stderr == (
        f"kafkacore: {node.controller} does not serve METADATA. Check that --bootstrap-server names brokers, and that "
        "their release is 3.9 or later\n"
    )


def test_dry_run_of_add_controller_names_the_node_of_the_configuration(tmp_path, endpoint):
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=controller\nnode.id=7\nlisteners=CONTROLLER://localhost:9093\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={tmp_path}/data\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
    )
    adding = ("metadata-quorum", *endpoint, "--command-config", properties, "add-controller", "--dry-run")
    refused = ours(*adding)
    assert refused.returncode == 1
    assert f"{tmp_path}/data is not formatted: run kafkacore storage format first" in refused.stderr
    formatted = ours("storage", "format", "-t", "kafkacorePeerAAAAAAAAA", "-c", properties, "--no-initial-controllers")
    assert formatted.returncode == 0, formatted.stderr
    found = ours(*adding)
    assert re.fullmatch(
        r"DRY RUN of adding controller 7 with directory id [\w-]{22} and endpoints: CONTROLLER://localhost:9093\n",
        found.stdout,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("metadata-quorum", "describe", "--status"), "--bootstrap-server --bootstrap-controller is required"),
        (("cluster", "cluster-id", "-b", "nowhere"), "--bootstrap-server: entry 'nowhere' must be host:port"),
        (("cluster", "cluster-id", "-b", ""), "--bootstrap-server: entry '' must be host:port"),
        (("cluster", "cluster-id", "-C", ""), "--bootstrap-controller: entry '' must be host:port"),
        (("features", "--bootstrap-server", "localhost:1", "feature-dependencies", "--feature", "x=2"), "Unknown"),
        (("features", "--bootstrap-server", "localhost:1", "upgrade", "--feature", "x"), "must be NAME=LEVEL"),
        (
            ("metadata-quorum", "--bootstrap-server", "h:1", "remove-controller", "-i", "1", "-d", "short"),
            "--controller-directory-id 'short'",
        ),
    ],
)
def test_error_names_the_mistake_when_a_command_line_is_wrong(arguments, message):
    found = ours(*arguments)
    assert found.returncode in (1, 2)
    assert message in found.stderr
