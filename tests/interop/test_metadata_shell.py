"""`kafkacore metadata-shell` shows the same entries as Apache Kafka's metadata shell for the same files."""

import itertools
import json
import re
import shutil
import subprocess
from functools import partial

import pytest

from brokers import APACHE, Node, java
from kafkacore.inspection.metadata_shell import files, tree
from metadata_files import every_kind, write_segment, write_snapshot
from processes import PEERS, ROOT, need, wait_until

RELEASE = APACHE["apache-4.3"]


@pytest.fixture(scope="module")
def shell():
    """Returns a function that runs Kafka's shell with a copy of a file, because the shell locks the parent of the
    directory that contains the file.

    Each command runs in a new process, because a second shell in the same process can wait for ever for its own
    threads.
    """
    need(any((PEERS / f"kafka-{RELEASE}").glob("kafka-shell-*.jar")), "Apache Kafka's metadata shell: make peers")

    def run(path, copies, *command):
        copied = copies / f"copy-{next(NUMBERS)}" / path.parent.name / path.name
        copied.parent.mkdir(parents=True)
        shutil.copy(path, copied)
        program = [*java(RELEASE, "256m"), "org.apache.kafka.shell.MetadataShell", "--snapshot", copied, *command]
        return subprocess.run(list(map(str, program)), capture_output=True, text=True, timeout=60, check=True).stdout

    return run


NUMBERS = itertools.count(1)


def assert_same_in_time(found, theirs):
    """Compares our output with Kafka's, and returns it. Kafka's shell may answer before it has read all files, so the
    check repeats the command until the outputs are equal."""
    for _ in range(20):
        if (shown := theirs()) == found:
            break
    assert found == shown
    return found


def ours(*arguments, stdin=""):
    program = [ROOT / ".venv" / "bin" / "kafkacore", "metadata-shell", *arguments]
    return subprocess.run(
        [str(word) for word in program], input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


def without_place(text):
    """Returns the text without the two lines that always differ. One of them shows, in Kafka's shell, the position of
    the last record in the snapshot file, and in ours, the offset of the state. The other shows the version of the
    program."""
    return re.sub(r"offset \d+, epoch (\d+), time \S+|(commitId|version):\n +\S+", r"\1", text)


@pytest.mark.parametrize(
    "command",
    [
        ("find", "/", "image/./scram/../producerIds", "nosuch"), ("tree", "/"), ("ls",), ("cat",),
        ("tree", "image/topics", "nosuch", "/image/acls/byId/"),
        ("ls", "/image/topics", "/image/provenance", "nosuch", "/", "/image/{acls,scram}"),
        ("cat", "/image/*/*", "/image/topics/byName/?oo/{0,1}", "/", "nosuch", "/image/features/x"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_output_over_a_snapshot_equals_the_output_of_kafkas_shell(shell, tmp_path, command):
    path = write_snapshot(tmp_path, 100, every_kind())
    found = ours("--snapshot", path, *command)
    shown = without_place(found.stdout)
    theirs = assert_same_in_time(shown, lambda: without_place(shell(path, tmp_path, *command)))
    assert found.stderr == ""
    assert found.returncode == int("o such" in theirs or "directory" in theirs or "too few" in theirs)


def test_output_over_a_log_equals_the_output_of_kafkas_shell(shell, tools, tmp_path):
    node = Node(tmp_path / "node", "--topic", "a.b:3", "--topic", "c:1")
    try:
        alter = ("kafka-configs", "--bootstrap-server", node.bootstrap, "--alter")
        tools.run(*alter, "--entity-type", "topics", "--entity-name", "c", "--add-config", "retention.ms=5")
        tools.run(*alter, "--entity-type", "users", "--entity-name", "u", "--add-config", "producer_byte_rate=1024")
        scram = "SCRAM-SHA-256=[iterations=4096,password=secret]"
        tools.run(*alter, "--entity-type", "users", "--entity-name", "u", "--add-config", scram)
        tools.run("kafka-topics", "--bootstrap-server", node.bootstrap, "--delete", "--topic", "a.b")
        running = ours("--directory", node.log_dir, "find", "/image")
        assert (running.returncode, running.stderr) == (0, ""), "a running node's directory must be readable"
    finally:
        node.stop()
    [log] = (node.log_dir / "__cluster_metadata-0").glob("*.log")
    found = ours("--directory", node.log_dir, "tree", "/image")
    assert (found.returncode, found.stderr) == (0, "")
    assert_same_in_time(found.stdout, lambda: shell(log, tmp_path, "tree", "/image"))
    assert found.stdout.splitlines() == ours("-s", log, "tree", "/image").stdout.splitlines()
    assert "retention.ms" in found.stdout
    assert "ScramCredentialData" in found.stdout


def test_state_at_an_offset_equals_kafkas_state_when_the_log_is_cut_there(shell, tmp_path):
    """Compares the states after some of the batches. Kafka's shell always reads the whole file, so the test cuts the
    file off after the batch."""
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    records = every_kind()
    path, places = write_segment(directory, 0, [records[:2], *[[each] for each in records[2:]]])
    whole = path.read_bytes()
    for (offset, _), (_, end) in list(itertools.pairwise(places))[4::8]:
        cut = tmp_path / f"cut-{offset}" / path.name
        cut.parent.mkdir()
        cut.write_bytes(whole[:end])
        found = ours("--directory", directory, "--at-offset", offset, "tree", "/image")
        assert (found.returncode, found.stderr) == (0, "")
        assert_same_in_time(found.stdout, partial(shell, cut, tmp_path, "tree", "/image"))


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = Node(tmp_path_factory.mktemp("live") / "node", "--topic", "early:1")
    yield node
    node.stop()


def test_live_quorum_shows_what_its_log_shows(node):
    live = ours("--bootstrap-controller", node.controller, "find", "/image/topics")
    assert (live.returncode, live.stderr) == (0, "")
    assert live.stdout == ours("--directory", node.log_dir, "find", "/image/topics").stdout
    assert "/image/topics/byName/early/0" in live.stdout.splitlines()


def test_live_quorum_shows_the_state_at_an_offset(node):
    offset = json.loads(ours("-d", node.log_dir, "-o", "json", "cat", "/image/provenance").stdout)["value"]["offset"]
    for at in (2, offset):
        live = ours("--bootstrap-controller", node.controller, "--at-offset", at, "tree", "/image")
        assert live.stdout == ours("--directory", node.log_dir, "--at-offset", at, "tree", "/image").stdout
        assert f"offset {at}, epoch" in live.stdout
    inside = ours("--bootstrap-controller", node.controller, "--at-offset", 1, "cat", "/image/provenance")
    assert "offset 1 is inside a batch, which takes effect as a whole: the state shown is at offset -1" in inside.stderr
    refused = ours("--bootstrap-controller", node.controller, "--at-offset", offset + 10_000, "ls")
    assert refused.returncode == 1
    assert "the quorum has committed the offsets up to " in refused.stderr


def test_live_quorum_shows_what_changes_while_the_shell_is_open(node, tools):
    program = [ROOT / ".venv" / "bin" / "kafkacore", "metadata-shell", "--bootstrap-controller", node.controller]
    opened = subprocess.Popen(list(map(str, program)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def asked(line):
        opened.stdin.write(line + "\n")
        opened.stdin.flush()
        return opened.stdout.readline()

    try:
        assert asked("cat /image/topics/byName/late/name").endswith(": No such file or directory.\n")
        tools.run("kafka-topics", "--bootstrap-server", node.bootstrap, "--create", "--topic", "late")
        wait_until(lambda: asked("cat /image/topics/byName/late/name") == "late\n", what="the new topic in the shell")
    finally:
        opened.stdin.close()
        assert opened.wait(30) in (0, 1)
        opened.stdout.close()


def test_observer_is_no_replica_of_the_quorum(node, tools):
    before = tools.run("kafka-metadata-quorum", "--bootstrap-controller", node.controller, "describe", "--replication")
    ours("--bootstrap-controller", node.controller, "ls")
    after = tools.run("kafka-metadata-quorum", "--bootstrap-controller", node.controller, "describe", "--replication")
    assert [line.split()[0] for line in after.lines] == [line.split()[0] for line in before.lines]


def test_damage_is_named_and_the_state_before_is_shown(node, tmp_path):
    copied = tmp_path / "copy"
    shutil.copytree(node.log_dir / "__cluster_metadata-0", copied)
    [log] = copied.glob("*.log")
    data = bytearray(log.read_bytes())
    image = files.load(str(copied), 5)[0]
    at = data.index(b"early")
    data[at] ^= 0xFF
    log.write_bytes(data)
    found = ours("--directory", copied, "ls", "/image/cluster/brokers")
    assert (found.returncode, found.stdout) == (1, "1\n")
    assert re.search(re.escape(str(log)) + r": byte \d+: offset \d+: .*; the state before it is shown", found.stderr)
    assert tree.root(image).child("image").child("topics").child("byName").names() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ls",), "one of the arguments --snapshot/-s --directory/-d --bootstrap-controller is required"),
        (("-d", "/nonexistent", "ls"), "/nonexistent"),
        (("--bootstrap-controller", "nowhere", "ls"), "'nowhere' must be host:port"),
    ],
)
def test_error_names_the_mistake_when_a_command_line_is_wrong(arguments, message):
    found = ours(*arguments)
    assert found.returncode in (1, 2)
    assert message in found.stderr
