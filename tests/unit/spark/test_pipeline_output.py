"""A pipeline does not write among the files that it reads."""

from argparse import Namespace

import pytest

pytest.importorskip("pyspark", reason="no PySpark: pip install kafkacore[spark], or ci/spark.sh")

from kafkacore.spark.pipelines import commands
from kafkacore.spark.pipelines.output import OutputError, check_output, check_table


@pytest.fixture
def data(tmp_path):
    """Returns a directory with two log directories. Only the first one has meta.properties."""
    for broker in ("one", "two"):
        (tmp_path / broker / "t-0").mkdir(parents=True)
        (tmp_path / broker / "t-0" / "00000000000000000000.log").touch()
    (tmp_path / "one" / "meta.properties").write_text("version=1\nnode.id=1\n")
    (tmp_path / "link").symlink_to("two")
    return tmp_path


@pytest.mark.parametrize(
    ("output", "inputs"),
    [
        ("one", []),
        ("one/new/audit", []),
        ("two", ["two"]),
        ("two/audit", ["one", "two"]),
        ("two/audit", ["*"]),
        ("two/audit", ["one,two"]),
        ("two/audit", ["two/t-0"]),
        ("two/t-0/audit", ["two/t-0"]),
        ("link/audit", ["two"]),
        ("two/audit", ["link"]),
    ],
)
def test_output_is_refused_when_it_is_in_a_log_directory(data, output, inputs, monkeypatch):
    monkeypatch.chdir(data)
    with pytest.raises(OutputError, match=r"is a log directory.* name a directory outside of all log directories"):
        check_output(output, inputs)


@pytest.mark.parametrize("inputs", [["one", "two"], ["*"], ["missing", "file"]])
def test_output_is_accepted_when_it_is_beside_log_directories(data, inputs, monkeypatch):
    monkeypatch.chdir(data)
    (data / "file").touch()
    check_output("audit", inputs)
    check_output(".", inputs)


def test_table_is_refused_when_it_would_replace_a_log_directory(data, monkeypatch):
    monkeypatch.chdir(data.parent)
    with pytest.raises(OutputError, match=r"would replace .*two, which the pipeline reads: name another directory"):
        check_table(str(data), [str(data / "two")])
    with pytest.raises(OutputError, match="would replace"):
        check_table(str(data / "link"), [str(data / "two")])
    check_table(str(data / "replicas"), [str(data / "two")])


def test_command_ends_with_1_before_it_writes_when_its_output_is_in_a_log_directory(data, monkeypatch, capsys):
    monkeypatch.setattr(commands, "session", lambda name: pytest.fail("Spark was started"))
    arguments = Namespace(
        pipeline="replica-audit", path=[str(data / "one")], metadata=[str(data / "two")], output=str(data / "two" / "a")
    )
    assert commands.run(arguments) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"kafkacore: --output names {data}/two/a, but {data}/two is a log directory")
    assert not (data / "two" / "a").exists()


def test_command_ends_with_1_and_keeps_its_input_when_a_table_would_replace_it(data, monkeypatch, capsys):
    monkeypatch.setattr(commands, "session", lambda name: None)
    make_table = lambda spark, arguments, report: commands._keep(arguments, {"two": None})  # noqa: E731
    monkeypatch.setitem(commands.PIPELINES, "audit", make_table)
    assert commands.run(Namespace(pipeline="audit", path=[str(data / "two")], output=str(data))) == 1
    assert f"the table {data}/two would replace {data}/two, which the pipeline reads" in capsys.readouterr().err
