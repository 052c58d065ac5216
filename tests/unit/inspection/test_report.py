"""The lines of dump-log, either as text in the format of kafka-dump-log, or as JSON in the format of Jackson."""

import io
import json

import pytest

from kafkacore.inspection.report import Report, compact


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({"a": [1, None, True], "b": ""}, '{"a":[1,null,true],"b":""}'),
        ("é € 😀 \x7f", '"é € 😀 \x7f"'),
        ('"\\\b\f\n\r\t\x01', '"\\"\\\\\\b\\f\\n\\r\\t\\u0001"'),
        ([-(1 << 63), (1 << 64) - 1], "[-9223372036854775808,18446744073709551615]"),
    ],
)
def test_json_is_compact_and_unescaped(content, line):
    assert compact(content) == line


def test_path_that_is_not_utf_8_becomes_valid_json():
    out = io.BytesIO()
    path = b"\xff.log".decode("utf-8", "surrogateescape")
    Report(out, io.StringIO(), as_json=True).entry("file", "", file=path)
    assert json.loads(out.getvalue().decode("ascii")) == {"kind": "file", "file": path}
