"""Reads and writes files of java.util.Properties, such as server.properties and meta.properties.

A line ends with LF, CR or CR LF. If a backslash escapes the end of a line, the next line continues it, and the leading
blanks of the next line are dropped. Comments begin with `#` or `!`. A key ends at the first unescaped `=`, `:` or
blank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kafkacore.config.errors import ConfigError, ConfigFileError

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED: Final = {
    "\t": "\\t",
    "\n": "\\n",
    "\r": "\\r",
    "\f": "\\f",
    "\\": "\\\\",
    "=": "\\=",
    ":": "\\:",
    "#": "\\#",
    "!": "\\!",
}


def load(path: str) -> dict[str, str]:
    """Reads the properties in a file. Raises ConfigFileError if the file cannot be read or an escape is malformed."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ConfigFileError(path, f"cannot be read: {error.strerror}") from None
    return parse(data, path)


def parse(data: bytes, source: str = "properties") -> dict[str, str]:
    """Returns the properties in the bytes of a file. Reads the bytes as UTF-8 if they are valid UTF-8, and otherwise as
    ISO-8859-1, as Java does.

    If a key occurs more than once, its last line counts. Raises ConfigFileError, which names `source` and the line.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            properties[_unescape(key)] = _unescape(value)
        except ValueError:
            problem = f"\\u must be followed by four hexadecimal digits, in {line!r}"
            raise ConfigFileError(f"{source} line {number}", problem) from None
    return properties


def store(properties: Mapping[str, str], comments: Iterable[str] = ()) -> bytes:
    """Returns the file that Properties.store writes: comments, and then `key=value` lines in ASCII with Unicode
    escapes."""
    lines = [f"#{comment}" for comment in comments]
    lines += [
        f"{_escape(key, every_blank=True)}={_escape(value, every_blank=False)}" for key, value in properties.items()
    ]
    return "".join(f"{line}\n" for line in lines).encode("iso-8859-1")


def parse_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """Parses `key=value` texts from a command line. A value has no escapes. Raises ConfigError."""
    properties: dict[str, str] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise ConfigError("--override", override, "must be key=value")
        properties[key.strip()] = value
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields each line that contains a property, joined with its continuation lines, and the number of the first of
    these lines."""
    natural = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not natural[-1]:
        natural.pop()
    line, first, continued = "", 0, 0
    for number, content in enumerate(natural, 1):
        stripped = content.lstrip(_BLANKS)
        if not line:
            # A blank line or comment line after a line with only a backslash is also skipped, because there is nothing
            # to continue.
            if not stripped or stripped[0] in "#!":
                continue
            first = number
        line += stripped
        if _goes_on(line):
            line, continued = line[:-1], number
        else:
            yield first, line
            line = ""
    # Java reads a backslash in the last line as an empty key if it ends the file, or only LF or only CR follows.
    if line or (continued == len(natural) > 0 and not text.endswith("\r\n")):
        yield first, line


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(_BLANKS)
    return key, rest[1:].lstrip(_BLANKS) if rest[:1] in ("=", ":") else rest


def _unescape(text: str) -> str:
    """Replaces escapes. Raises ValueError for a `\\u` without four hexadecimal digits."""
    if "\\" not in text:
        return text
    made: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\\":
            char = text[position : position + 1]
            position += 1
            if char == "u":
                digits = text[position : position + 4]
                if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                    raise ValueError(text)
                char = chr(int(digits, 16))
                position += 4
            else:
                char = _ESCAPES.get(char, char)
        made.append(char)
    # Two escapes may be the two surrogates of one character outside the basic plane.
    return "".join(made).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, every_blank: bool) -> str:
    made: list[str] = []
    for position, char in enumerate(text):
        if char == " ":
            made.append("\\ " if every_blank or position == 0 else " ")
        elif " " < char <= "~":
            made.append(_ESCAPED.get(char, char))
        elif char in _ESCAPED:
            made.append(_ESCAPED[char])
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            made += [f"\\u{units[at] << 8 | units[at + 1]:04X}" for at in range(0, len(units), 2)]
    return "".join(made)
