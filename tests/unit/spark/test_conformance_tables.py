"""The tables of docs/spark.md, which compare our options with the options of Spark's connector. They name every option,
and each row names tests that exist.
"""

import re

import pytest

from kafkacore.spark.client_keys import READING, REFUSED, WRITING
from kafkacore.spark.options import READ_OPTIONS, WRITE_OPTIONS
from processes import ROOT

DOCUMENT = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
TABLES = ("Options for reading", "Options for writing", "Options of Kafka's client", "Behaviour")


def rows_of(title):
    """Returns the cells of each row of the table in a section of the document."""
    section = DOCUMENT.split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def named(cell):
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("title", TABLES)
def test_each_row_names_tests_that_exist(title):
    existing = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    for *_, tests in rows_of(title):
        assert named(tests), f"a row of {title} names no test"
        assert set(named(tests)) <= existing


@pytest.mark.parametrize(("title", "options"), [
    ("Options for reading", READ_OPTIONS), ("Options for writing", WRITE_OPTIONS),
])  # fmt: skip
def test_table_names_every_option(title, options):
    assert set(options) <= {name for first, *_ in rows_of(title) for name in named(first)}


def test_table_names_every_key_that_has_an_effect():
    keys = [name for first, *_ in rows_of("Options of Kafka's client") for name in named(first)]
    patterns = [key.removesuffix("*") for key in keys if key.endswith("*")]
    for key in (*READING, *WRITING, *REFUSED):
        assert key in keys or key.startswith(tuple(patterns)), key
