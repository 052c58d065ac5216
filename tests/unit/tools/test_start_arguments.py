"""`kafkacore start` and `kafkacore dev`: arguments that are read without argparse are read as argparse does."""

import argparse
import contextlib
import io
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkacore.tools import dev, start

PLAIN = [
    (["server.properties"], ("server.properties", [])),
    (["a", "--override", "k=v", "--override=-1"], None),
    (["a", "--override", "k=v", "--override=l=w=x"], ("a", ["k=v", "l=w=x"])),
    (["--override", "k=v", "a"], ("a", ["k=v"])),
    (["--override", "k=", "a b", "--override="], ("a b", ["k=", ""])),
]
WORDS = st.lists(
    st.sampled_from(
        [
            "a",
            "",
            "k=v",
            "-",
            "--",
            "-h",
            "--help",
            "--override",
            "--over",
            "--override=k=v",
            "--override=",
            "--x",
            "-1",
        ]
    )
    | st.text(max_size=3),
    max_size=5,
)


DEV_PLAIN = [
    ([], ([], 0, None, [], False, False)),
    (["--json", "--dir", "d", "--with-parent"], ([], 0, "d", [], True, True)),
    (
        ["--port", "1", "--port=2", "--topic", "t:3", "--topic=u", "--override=k=v"],
        (["t:3", "u"], 2, None, ["k=v"], False, False),
    ),
    (["--port", "x"], None),
    (["--port="], None),
    (["file"], None),
    (["--js"], None),
]
DEV_WORDS = st.lists(
    st.sampled_from(
        ["--json", "--with-parent", "--with", "--json=", "--dir", "--dir=", "--dir=a", "--port", "--port=7",
         "--port=-1", "--topic", "--topic=t:2", "--override", "--override=k=v", "--over",
         "t", "12", "1_2", "-h", "--", "-", ""]
    )
    | st.text(max_size=3),
    max_size=6,
)  # fmt: skip


def by_argparse(command, words):
    """What argparse reads, by name; None where it exits: with what is wrong, or with its help."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            return vars(parser.parse_args(words))
        except SystemExit:
            return None


@pytest.mark.parametrize(("words", "read"), PLAIN)
def test_what_is_read_plainly(words, read):
    assert start.read_plain(words) == read


@given(WORDS)
@example(["a", "--override", "--", "b"])
@example(["a", "b"])
@example(["a", "--override"])
def test_what_is_read_plainly_is_what_argparse_reads(words):
    read = start.read_plain(words)
    assert read is None or read._asdict() == by_argparse(start, words)


@pytest.mark.parametrize(("words", "read"), DEV_PLAIN)
def test_what_a_temporary_node_is_told_plainly(words, read):
    assert dev.read_plain(words) == read


@given(DEV_WORDS)
@example(["--port", "\u0663"])
@example(["--dir", "a", "--dir", "b"])
@example(["--override", "--json"])
def test_what_a_temporary_node_is_told_plainly_is_what_argparse_reads(words):
    read = dev.read_plain(words)
    assert read is None or read._asdict() == by_argparse(dev, words)


@pytest.mark.parametrize("command", [["start"], ["dev", "--json", "--dir"]])
def test_a_plain_start_does_without_argparse_and_its_translations(command, tmp_path):
    nothing = tmp_path / "file" / "nothing"
    nothing.parent.touch()  # no node can be there
    program = (
        "import sys; from kafkacore.tools import main; code = main.main(sys.argv[1:]);"
        "print(code, sorted({'argparse', 'gettext'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *command, str(nothing)], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "1 []\n", ran.stderr
