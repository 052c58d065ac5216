"""`kafkacore start`: arguments that are read without argparse are read as argparse does."""

import argparse
import contextlib
import io
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkacore.tools import start

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


def by_argparse(words):
    """`(config, override)`, or None where argparse exits: with what is wrong, or with its help."""
    parser = argparse.ArgumentParser()
    start.add_arguments(parser)
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            read = parser.parse_args(words)
        except SystemExit:
            return None
    return read.config, read.override


@pytest.mark.parametrize(("words", "read"), PLAIN)
def test_what_is_read_plainly(words, read):
    assert start.read_plain(words) == read


@given(WORDS)
@example(["a", "--override", "--", "b"])
@example(["a", "b"])
@example(["a", "--override"])
def test_what_is_read_plainly_is_what_argparse_reads(words):
    read = start.read_plain(words)
    assert read is None or tuple(read) == by_argparse(words)


def test_a_plain_start_does_without_argparse_and_its_translations(tmp_path):
    program = (
        "import sys; from kafkacore.tools import main; code = main.main(sys.argv[1:]);"
        "print(code, sorted({'argparse', 'gettext'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, "start", str(tmp_path / "nothing")], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "1 []\n", ran.stderr
