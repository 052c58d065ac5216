"""Decoding of UTF-8, compared with Python's decoder. For some invalid bytes, Java's decoder returns a different number
of replacement characters. We follow Java, so the test adapts the expected text.
"""

import json
import re

from hypothesis import example, given
from hypothesis import strategies as st

from kafkacore._fast.base.text import replaced

AWKWARD = [
    b"\xe0",
    b"\xed",
    b"\xf0\x90",
    b"\xf4",
    b"\xc1",
    b"\x80",
    b"\xbf",
    b"\x8f",
    b"\xa0",
    b"ab",
    "é€😀".encode(),
    b'"\\\n',
]
BYTES = st.one_of(st.binary(), st.lists(st.sampled_from(AWKWARD)).map(b"".join))


def as_java(data):
    """Decodes as Java does: an encoded surrogate, even if truncated, gives a single replacement character. In all other
    cases Java decodes like Python."""
    return re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]?", b"\xff", data).decode("utf-8", "replace")


@given(BYTES)
@example(b"\xed\xa0\x80 \xf4\x90\x80\x80 \xf0\x80\x80\x80 \xe2\x82")
@example(b"12345678\xff1234567\xc3")
@example(b"\xed\xa0 \xed\xbf\xc2 \xed\xb2\x90\x90 \xed")
def test_invalid_utf_8_is_replaced_like_java_replaces_it(data):
    assert replaced(data) == as_java(data).encode()


@given(BYTES)
@example(bytes(range(256)))
def test_text_is_escaped_for_a_json_string(data):
    assert json.loads(b'"%b"' % replaced(data, escaped=True)) == as_java(data)
