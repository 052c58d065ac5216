"""server.properties is read and written in the same way as by java.util.Properties."""

import pytest

from kafkacore.config import ConfigError
from kafkacore.config.properties import load, parse, parse_overrides, store


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("  a \t = \t 1 \t", {"a": "1 \t"}),  # trailing blanks belong to the value
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==1", {"a": "=1"}),
        ("a : : 1", {"a": ": 1"}),
        ("=1", {"": "1"}),
        ("# a=1\n!b=2\n   # c=3\nd=4", {"d": "4"}),
        ("a=1 # not a comment", {"a": "1 # not a comment"}),
        ("a=1\r\nb=2\rc=3\n\n\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=one,\\\n    two,\\\n\tthree", {"a": "one,two,three"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),  # an escaped backslash does not continue the line
        ("a=b\\\\\\\n  c", {"a": "b\\c"}),
        ("a=b\\\n", {"a": "b"}),
        ("a=b\\", {"a": "b"}),
        ("# a comment\\\na=1", {"a": "1"}),  # a comment cannot be continued either
        ("a=1\\\n# still the value", {"a": "1# still the value"}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a=\\t\\n\\r\\f\\\\\\q\\'", {"a": "\t\n\r\f\\q'"}),
        ("a=\\u00e9\\u4E2d", {"a": "é中"}),
        ("a=\\uD83D\\uDE00", {"a": "😀"}),
    ],
)
def test_lines_are_read_as_java_reads_them(text, expected):
    assert parse(text.encode()) == expected


def test_file_is_read_as_latin1_when_it_is_not_utf8():
    assert parse("a=é".encode()) == {"a": "é"}
    assert parse("a=é".encode("iso-8859-1")) == {"a": "é"}


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12G4", "x=1\na\\u=1"])
def test_error_names_the_line_of_a_broken_unicode_escape(text):
    with pytest.raises(ConfigError, match=f"my.properties line {text.count(chr(10)) + 1}.*four hexadecimal digits"):
        parse(text.encode(), "my.properties")


def test_stored_properties_are_read_back():
    properties = {"a key": " a value ", "=:#!": "=:#!\\", "tab\t": "\n\r\f", "é": "中 😀", "path": "C:\\logs"}
    data = store(properties, ("", "a comment"))
    assert parse(data) == properties
    assert data.startswith(b"#\n#a comment\n")
    assert data.isascii()


def test_store_escapes_as_java_does_it():
    assert store({"a b": " c d", "k:": "x=y", "é": "😀"}) == b"a\\ b=\\ c d\nk\\:=x\\=y\n\\u00E9=\\uD83D\\uDE00\n"


def test_error_names_a_file_that_cannot_be_read(tmp_path):
    path = str(tmp_path / "none.properties")
    with pytest.raises(ConfigError) as refused:
        load(path)
    assert str(refused.value) == f"{path}: cannot be read: No such file or directory"


def test_overrides_are_taken_verbatim():
    assert parse_overrides(["a=b=c", "d=", " e = \\u0041"]) == {"a": "b=c", "d": "", "e": " \\u0041"}


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_override_without_key_or_value_is_refused(text):
    with pytest.raises(ConfigError, match="must be key=value"):
        parse_overrides([text])
