"""The prose check reports the line of each forbidden phrase, and accepts code, headings and questions."""

import subprocess
import sys
from pathlib import Path

import pytest

PROSE = Path(__file__).parents[3] / "ci" / "prose.py"


def check(root, name, text):
    path = root / name
    path.write_text(text)
    result = subprocess.run([sys.executable, PROSE, path], capture_output=True, text=True, check=False, timeout=30)
    assert result.stderr == ""
    found = [line.removeprefix(f"{path}:") for line in result.stdout.splitlines()]
    assert result.returncode == (1 if found else 0)
    return found


@pytest.mark.parametrize(
    "sentence",
    [
        "Of what is dirty each is synced once.",
        "What survives is listed.",
        "Who asks gets it.",
        "Whose turn comes is served.",
        "Whoever asks is answered.",
        "Whatever waits is woken.",
        "A topic that is none.",
        "Two files are none.",
        "The caller is told the reason.",
        "The callers are told the reason.",
        "A name that there is not, in a list.",
        "It tells of a loss.",
        "The lock is for readers to take.",
        "The log wakes whoever waits.",
        "The same of a control record.",
        "No listener is called so.",
        "The line has no epoch that there can be.",
        "NULL when memory is out.",
        "Nothing points into it any more.",
        "It waits at most so long.",
        "A frame may be idle for so long.",
        "The group exists all the same.",
    ],
)
def test_each_pattern_is_found_at_the_begin_and_behind_another_sentence(tmp_path, sentence):
    assert check(tmp_path, "a.py", f"# {sentence}\n") == [f"1: {sentence}"]
    assert check(tmp_path, "a.py", f"# The log is closed.\n# {sentence}\n") == [f"2: {sentence}"]


@pytest.mark.parametrize(
    "sentence",
    [
        "What survives a power loss?",
        "Offsets are kept. Whatnot is a word.",
        "The value is None.",
        "There is none left.",
        "The codecs are none, gzip, snappy.",
        "There is not enough memory for it.",
        "The client asks what is left of the log.",
        "The text `What is told` is code.",
        "The rule applies many more times than any more recent one.",
        "It waits for so long that the client gives up.",
        "All the same bytes come back.",
    ],
)
def test_plain_sentences_and_questions_pass(tmp_path, sentence):
    assert check(tmp_path, "a.py", f"# {sentence}\n") == []
    assert check(tmp_path, "a.md", f"{sentence}\n") == []


def test_python_is_read_in_comments_docstrings_messages_and_test_names(tmp_path):
    text = (
        '"""A module.\n\nWhat it does.\n"""\n'
        "x = 1  # Of one kind.\n"
        "# The first line of a comment. What\n# follows stands on the next.\n"
        'raise ValueError(f"{x} is none of ours")\n'
        'y = "no # comment. What is this"\n'
        "def test_who_asks_is_answered(): ...\n"
        "async def test_the_default_is_none(): ...\n"
    )
    assert check(tmp_path, "a.py", text) == [
        "3: What it does.",
        "5: Of one kind.",
        "6: The first line of a comment. What",
        "8: `x` is none of ours",
        "9: no # comment. What is this",
        "10: Who asks is answered",
    ]


def test_cython_is_read_in_comments_docstrings_and_messages(tmp_path):
    text = (
        '"""What a log is."""\n'
        "cdef int cut(char *at, int n) except? -1 nogil:  # Who calls holds the lock.\n"
        "    cdef char sign = b'\"'\n"
        "    # Whose file it is.\n"
        '    raise ValueError("the caller is told")\n'
        "    return <int> at[0] if n else 0  # the rest\n"
    )
    assert check(tmp_path, "a.pyx", text) == [
        "1: What a log is.",
        "2: Who calls holds the lock.",
        "4: Whose file it is.",
        "5: the caller is told",
    ]


def test_shell_is_read_in_comments_and_messages_but_not_in_code(tmp_path):
    text = (
        '#!/usr/bin/env bash\n# What it builds.\nsay "Who is told"\n[ ${#names[@]} -eq 0 ]  # Of those.\nx="# What"x\n'
    )
    assert check(tmp_path, "a.sh", text) == ["2: What it builds.", "3: Who is told", "4: Of those."]


def test_java_and_c_are_read_in_comments(tmp_path):
    text = '/**\n * Reads a log.\n * What is left stays.\n */\nString a = "// What is"; // Of one kind.\n'
    assert check(tmp_path, "A.java", text) == ["3: What is left stays.", "5: Of one kind."]
    assert check(tmp_path, "a.c", text) == ["3: What is left stays.", "5: Of one kind."]


def test_markdown_is_read_but_for_headings_code_and_the_header_of_a_table(tmp_path):
    text = (
        "# What it is\n\nA node. What is\nit for stands here.\n\n"
        "```\n# What is told\n```\n"
        "| What it does | key |\n|---|---|\n| reads | Who reads |\n\n"
        "- an item\n- Of two kinds\n1. Whose log\n"
    )
    assert check(tmp_path, "a.md", text) == ["3: A node. What is", "11: Who reads", "14: Of two kinds", "15: Whose log"]


def test_a_folder_is_read_whole_and_a_missing_path_is_refused(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.py").write_text("# What is here.\n")
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "a.py").write_text("# What is made.\n")
    found = subprocess.run([sys.executable, PROSE, tmp_path], capture_output=True, text=True, check=False, timeout=30)
    assert found.stdout == f"{tmp_path}/inner/a.py:1: What is here.\n"
    missing = subprocess.run([sys.executable, PROSE, tmp_path / "no"], capture_output=True, text=True, check=False)
    assert missing.returncode == 2
    assert f"{tmp_path}/no" in missing.stderr


def test_a_file_that_cannot_be_parsed_is_named(tmp_path):
    (found,) = check(tmp_path, "a.py", 'x = """an open string\n')
    assert found.startswith("1: cannot be parsed: ")
