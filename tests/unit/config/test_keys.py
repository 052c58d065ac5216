"""The tables of configuration keys are complete, and agree with Apache Kafka's."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

from kafkacore.config import keys as keys_module
from kafkacore.config.keys import BROKER, BROKER_3_9, CLIENT_METRICS, GROUP, TOPIC, TOPIC_3_9, Keys
from kafkacore.config.values import allowed, default, parse, render
from processes import PEERS, ROOT, need

TYPES = {"boolean", "int", "long", "short", "double", "string", "list", "class", "password"}
JAVA_TIMEOUT_S = 60


@pytest.mark.parametrize(
    "keys",
    [BROKER, BROKER_3_9, TOPIC, TOPIC_3_9, GROUP, CLIENT_METRICS],
    ids=["broker", "broker 3.9", "topic", "topic 3.9", "group", "metrics of clients"],
)
def test_every_row_parses_its_own_default(keys):
    for key in keys:
        assert key.type in TYPES
        assert key.importance in {"high", "medium", "low"}
        assert key.mode in {"read-only", "per-broker", "cluster-wide"}
        assert key.generation in {"3.9", "4.3", "both", "own"}
        assert keys.documentation(key.name)
        assert allowed(key)
        if not key.required:
            text = render(default(key))
            # A default passes the check of its own key, except for null defaults and for port 0, which lets the system
            # choose a port.
            assert text is None or key.type == "password" or render(parse(key, text)) == text


def test_attribute_name_stands_for_one_key():
    for keys in (BROKER, TOPIC):
        assert len({key.name.replace(".", "_") for key in keys}) == len(keys)
        assert not any("_" in name for name in keys.names())


@pytest.mark.parametrize("keys", [BROKER, TOPIC, GROUP, CLIENT_METRICS])
def test_every_key_without_effect_has_a_reason(keys):
    assert [key.name for key in keys if not key.honoured and not keys.reason(key.name)] == []
    reasons = [line.partition("\t")[0] for line in Path(keys._reasons_file).read_text().splitlines()[1:]]
    assert [prefix for prefix in reasons if not any(name.startswith(prefix) for name in keys.names())] == []


def test_table_is_whole_for_a_thread_that_reads_it_while_another_loads_it(monkeypatch):
    keys, read = Keys("topic"), []

    class Heading(str):
        __slots__ = ()

        def split(self, *separator):
            # At this moment another thread asks for the same key.
            if not read:
                read.append(None)
                read.append(keys["retention.ms"].type)
            return super().split(*separator)

    def lines_of(path):
        heading, lines = table_lines(path)
        return Heading(heading), lines

    table_lines = keys_module._lines
    monkeypatch.setattr(keys_module, "_lines", lines_of)
    assert keys["retention.ms"].type == "long"
    assert read == [None, "long"]


def test_keys_of_a_topic_inherit_from_keys_of_the_broker():
    for key in TOPIC:
        for name, factor in key.broker_keys:
            assert name in BROKER
            assert factor in {1, 60_000, 3_600_000}


def test_stub_is_up_to_date():
    spec = importlib.util.spec_from_file_location("config_stub", ROOT / "ci" / "config_stub.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.STUB.read_text() == module.stub(), "run: python ci/config_stub.py"


# Kafka's default of 100 KiB for socket buffers slows a connection down. With -1, the operating system chooses the size
# and can enlarge the buffers.
OWN_DEFAULTS = {("broker", "socket.send.buffer.bytes"): "-1", ("broker", "socket.receive.buffer.bytes"): "-1"}


@pytest.mark.parametrize(
    ("release", "broker", "topic"), [("3.9.2", BROKER_3_9, TOPIC_3_9), ("4.3.1", BROKER, TOPIC)], ids=["3.9", "4.3"]
)
def test_keys_types_and_defaults_are_the_same_as_in_apache_kafka(release, broker, topic):
    jars = PEERS / f"kafka-{release}"
    need((jars / ".complete").exists(), "no jars of Apache Kafka: make peers")
    program = ROOT / "ci" / "config" / "ConfigTable.java"
    printed = subprocess.run(
        ["java", "-cp", f"{jars}/*", str(program)], check=True, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S
    ).stdout
    theirs = {"broker": {}, "topic": {}, "group": {}, "client_metrics": {}, "mode": {}}
    for line in printed.splitlines():
        scope, name, *fields = line.split("\t")
        theirs[scope][name] = fields
    other = "4.3" if release.startswith("3.9") else "3.9"
    # The set of keys that can change at run time is the same as in 4.3, the release that we implement.
    if release.startswith("4.3"):
        ours = {key.name: [key.mode] for key in broker if key.dynamic and key.generation in {"4.3", "both"}}
        assert ours == theirs["mode"]
    scopes = [("broker", broker), ("topic", topic)]
    scopes += [("group", GROUP), ("client_metrics", CLIENT_METRICS)] if release.startswith("4.3") else []
    for scope, keys in scopes:
        ours = {key.name for key in keys if key.generation not in {other, "own"} and not key.dynamic_only}
        assert ours == set(theirs[scope])
        for name, (kind, value, importance, validator, internal) in theirs[scope].items():
            key = keys[name]
            assert key.type == kind, name
            default = "!" if key.required else str(key.default).replace("None", "null")
            assert default == OWN_DEFAULTS.get((scope, name), value), name
            assert key.importance == importance or release.startswith("3.9"), name
            assert key.internal == (internal == "true") or release.startswith("3.9"), name
            printable = expected_check(key, validator)
            assert printable is None or printable in key.check.split(), name


def expected_check(key, validator):
    """Converts a validator, in the form in which Kafka prints it (a range or a list of words), to the form of our
    table. Returns None for other validators."""
    if not validator.startswith("[") or key.check in {"release", "replicas", "reset"}:
        return None
    fields = validator.split("]")[0][1:].split(",")
    if "..." in fields:
        low, high = (bound.replace("...", "") for bound in (fields[0], fields[-1]))
        return f"{low}..{high}"
    return "in:" + ",".join(field.strip() for field in fields)
