"""The command line of `kafkacore`: what each command accepts and refuses, and its exit codes."""

import json
import os
import re
import subprocess
import sys

import pytest

from kafkacore import __version__
from kafkacore.controller import quorum
from kafkacore.tools import main as command_line


def ran(monkeypatch, command, *words):
    """Returns the arguments that `kafkacore COMMAND WORDS` passes to the command's module."""
    seen = []
    module = command_line.import_module(f"kafkacore.tools.{command}")
    monkeypatch.setattr(module, "run", lambda arguments: seen.append(arguments) or 0)
    assert command_line.main([command, *words]) == 0
    values = vars(seen[0])
    return {name: value for name, value in values.items() if name != "run"}


@pytest.mark.parametrize(
    ("words", "config", "override"),
    [
        (["server.properties"], "server.properties", []),
        (["a", "--override", "k=v", "--override=l=w=x"], "a", ["k=v", "l=w=x"]),
        (["--override", "k=", "a b", "--override="], "a b", ["k=", ""]),
    ],
)
def test_start_reads_its_file_and_every_override(monkeypatch, words, config, override):
    assert ran(monkeypatch, "start", *words) == {"config": config, "override": override}


def test_dev_reads_every_option(monkeypatch):
    words = ["--port", "1", "--port=2", "--topic", "t:3", "--topic=u", "--override=k=v", "--dir", "d", "--json"]
    assert ran(monkeypatch, "dev", *words) == {
        "topic": ["t:3", "u"],
        "port": 2,
        "dir": "d",
        "override": ["k=v"],
        "json": True,
        "with_parent": False,
    }


PLAN = ["spark", "placement-plan", "d", "--output", "o"]
REASSIGN = ["reassign-partitions", "--bootstrap-server", "localhost:1", "--list"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "required: COMMAND"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["start"], "required: FILE"),
        (["start", "a", "b"], "unrecognized arguments: b"),
        (["dev", "--port", "x"], "argument --port: invalid int value: 'x'"),
        (["demo", "--records", "0"], "argument --records: '0' must be a whole number of at least 1"),
        (["spark", "demo", "--seconds", "0"], "argument --seconds: '0' must be a whole number of at least 1"),
        *(
            ([*PLAN, "--rate-hours", text], f"argument --rate-hours: '{text}' must be a number above 0")
            for text in ("0", "-1", "nan", "inf", "x")
        ),
        ([*REASSIGN, "--throttle", "-7"], "argument --throttle: '-7' must be a whole number of at least -1"),
        ([*REASSIGN, "--timeout", "-7"], "argument --timeout: '-7' must be a whole number of at least 0"),
    ],
)
def test_wrong_command_line_exits_with_2_and_names_the_error(words, complaint, capsys):
    with pytest.raises(SystemExit) as ended:
        command_line.main(words)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("step", ["import", "run"])
def test_command_ends_with_130_when_it_is_interrupted(monkeypatch, capsys, step):
    def interrupted(_argument):
        raise KeyboardInterrupt

    if step == "import":
        monkeypatch.setattr(command_line, "import_module", interrupted)
    else:
        monkeypatch.setattr(command_line.import_module("kafkacore.tools.simulate"), "run", interrupted)
    assert command_line.main(["simulate"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("target", "complaint"), [("pipe", ""), ("/dev/full", "kafkacore: No space left on device\n")])
def test_command_ends_with_1_when_nobody_takes_its_output(target, complaint):
    reader, writer = os.pipe()
    os.close(reader)
    words = ["features", "--bootstrap-server", "localhost:1", "version-mapping"]
    with open(writer if target == "pipe" else target, "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "kafkacore.tools.main", *words],
            stdout=output, stderr=subprocess.PIPE, text=True, timeout=30, check=False,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, complaint)


def test_command_succeeds_when_its_output_is_closed(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert command_line.main(["features", "--bootstrap-server", "localhost:1", "version-mapping"]) == 0


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as ended:
        command_line.main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert [name for name in command_line.COMMANDS if not re.search(rf"^    {name}( |$)", shown, re.MULTILINE)] == []


@pytest.mark.parametrize("command", command_line.COMMANDS)
def test_help_of_a_command_describes_it(command, capsys):
    with pytest.raises(SystemExit) as ended:
        command_line.main([command, "--help"])
    assert ended.value.code == 0
    assert f"usage: kafkacore {command} " in capsys.readouterr().out


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as ended:
        command_line.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"kafkacore {__version__}\n"


# Libraries for clients, for tests, or for reading many records at once. A node must run without them.
HEAVY = ("aiokafka", "confluent_kafka", "hypothesis", "numpy", "prometheus_client", "pytest")


def test_start_imports_no_client_no_test_library_and_no_module_of_a_later_request():
    unwanted = {*HEAVY, *(f"{quorum.__name__}.{name}" for name in quorum.ON_REQUEST)}
    program = f"import json, sys, kafkacore.tools.start; print(json.dumps(sorted({unwanted!r} & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_spark_names_the_java_home_that_has_no_java(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    assert command_line.main(["spark", "controller-report", "data", "--output", "out"]) == 1
    message = f"kafkacore: Spark needs Java 17, but JAVA_HOME={tmp_path} has no bin/java\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize("name", sorted(quorum.ON_REQUEST))
def test_a_late_module_of_the_controller_is_imported_when_its_attribute_is_used(name):
    assert getattr(quorum, name).__name__ == f"{quorum.__name__}.{name}"


def test_the_controller_package_raises_attribute_error_for_an_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = quorum.nonsense
