"""The generator of native tables. It derives numbers, structs and files from Kafka's message tables, and reports
mistakes in its list HOT.
"""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafkacore._fast.schema.wire import BINDINGS
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode

SCRIPT = Path(__file__).parents[3] / "ci" / "native_tables.py"


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("native_tables", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def numbers(text):
    return {name: int(number) for name, number in re.findall(r"^    ([A-Z][A-Z0-9_]*) = (-?\d+)$", text, re.MULTILINE)}


def test_error_codes_equal_the_protocol_table(generator):
    assert numbers(generator.error_codes()) == {error.name: int(error) for error in ErrorCode.all()}


def test_api_keys_equal_the_protocol_table(generator):
    assert numbers(generator.api_keys()) == {name: key for name, key in vars(ApiKey).items() if name.isupper()}


def test_bindings_serve_the_declared_versions(generator):
    assert {name: (each.lowest, each.highest) for name, each in BINDINGS.items()} == {
        hot.message: (hot.lowest, hot.highest) for hot in generator.HOT
    }


def test_struct_has_the_fields_of_the_declared_versions_only(generator):
    fields = [field.name for field in generator.structs_of(generator.Hot("FetchRequest", 4, 11))["FetchRequest"]]
    assert "rack_id" in fields
    assert "cluster_id" not in fields  # this field exists from version 12 on


def test_generator_refuses_a_version_that_the_table_lacks(generator):
    with pytest.raises(ValueError, match="ProduceRequest 3 to 14 are in HOT, but the table has 3 to 13"):
        generator.structs_of(generator.Hot("ProduceRequest", 3, 14))


def test_generator_refuses_two_different_structs_of_one_name(generator, monkeypatch):
    hot = (generator.Hot("FetchResponse", 4, 18), generator.Hot("OffsetForLeaderEpochResponse", 2, 4))
    monkeypatch.setattr(generator, "HOT", hot)
    with pytest.raises(ValueError, match="and FetchResponse have different structs with the name EpochEndOffset"):
        list(generator.distinct_structs())


def test_generator_leaves_current_files_alone(generator):
    before = {path: (generator.ROOT / path).stat().st_mtime_ns for path in generator.generated()}
    subprocess.run([sys.executable, SCRIPT], check=True)
    assert {path: (generator.ROOT / path).stat().st_mtime_ns for path in before} == before


def test_generated_files_are_ignored_by_git_and_left_out_of_the_source_distribution(generator):
    excluded = set((generator.ROOT / "MANIFEST.in").read_text().split())
    ignored = set((generator.ROOT / ".gitignore").read_text().split())
    for path in map(str, generator.generated()):
        assert path in excluded, path
        assert path in ignored, path
