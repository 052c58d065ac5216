"""Parses the text of values and formats values as text, as Kafka's ConfigDef does.

The checks in the tables are words, separated by blanks. A value must satisfy all of them:

LOW..HIGH  a number in this range; a missing end means no limit; `or:N` also allows the number N
in:A,B     one of these words; `ci:` ignores the case
nonempty   a text or list that is not empty
distinct   a list without empty entries; duplicates are dropped
release    a Kafka release or metadata version, such as 3.9 or 3.9-IV0
voters     entries `id@host:port` (controller.quorum.voters)
addresses  entries `host:port` (controller.quorum.bootstrap.servers)
limits     entries `host:count` (max.connections.per.ip.overrides)
replicas   `partition:broker` entries, or `*` (KIP-73)
reset      where a share group begins: latest, earliest, or by_duration:PnDTnHnMn.nS (KIP-932)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, TypeAlias

from kafkacore.config.addresses import AddressError, parse_address, parse_limits, parse_replica, parse_voter
from kafkacore.config.errors import ConfigError
from kafkacore.config.keys import Key

BLANKS: Final = "".join(map(chr, range(0x21)))  # the characters that Java's String.trim removes
HIDDEN: Final = "[hidden]"
_NOUNS: Final = {
    "boolean": "true or false",
    "short": "a 16-bit int",
    "int": "an int",
    "long": "a long",
    "double": "a double",
    "list": "a comma-separated list",
    "class": "a class name",
}
# The AddressError of these parsers is more precise than the message of a failed check.
_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "voters": parse_voter,
    "addresses": parse_address,
    "limits": parse_limits,
}
_BITS: Final = {"short": 16, "int": 32, "long": 64}


class Password:
    """A secret. `value` is its text, which neither `str` nor `repr` shows."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


Value: TypeAlias = bool | int | float | str | tuple[str, ...] | Password | None


def parse(key: Key, text: str) -> Value:
    """Returns the typed value of `text`: bool, int, float, str, tuple of str, or Password.

    Raises ConfigError, which names the key, the value and the allowed values.
    """
    trimmed = text.strip(BLANKS)
    shown = HIDDEN if key.type == "password" else text
    try:
        value = _typed(key, trimmed)
        checks = key.check.split()
        if isinstance(value, tuple) and "distinct" in checks:
            value = tuple(dict.fromkeys(value))
        if key.check != "-":
            for check in checks:
                if not _satisfies(check, value, checks):
                    raise ValueError
    except AddressError as bad:
        raise ConfigError(key.name, shown, str(bad)) from None
    except ValueError:
        raise ConfigError(key.name, shown, f"must be {allowed(key)}") from None
    return value


def stored(key: Key, values: Mapping[str, str]) -> tuple[Value, ConfigError | None]:
    """Returns the typed value of a stored setting, and None for the error. If the value is not allowed, returns None
    and the error.

    Another release may have stored a value that this release does not allow, and a broker cannot refuse metadata.
    """
    try:
        return parse(key, values[key.name]), None
    except ConfigError as error:
        return None, error


@cache  # all configurations in a process read the same defaults
def default(key: Key) -> Value:
    """Returns the typed default, or None if it is Kafka's null. Raises ConfigError if Kafka demands a value."""
    if key.required:
        raise ConfigError(key.name, None, f"it has no default and must be {allowed(key)}")
    return None if key.default is None else _typed(key, key.default)


def allowed(key: Key) -> str:
    """Describes the allowed values in words, such as `an int of at least 1`."""
    choices = next((check.partition(":")[2] for check in key.check.split() if check[:3] in ("in:", "ci:")), "")
    noun = _NOUNS.get(key.type, "one" if choices else "a text")
    words = [_words(check, key.type) for check in key.check.split()]
    return " ".join(
        [noun, *([f"of {choices.replace(',', ', ')}"] if choices else []), *(word for word in words if word)]
    )


def render(value: Value) -> str | None:
    """Returns the text that Kafka shows for a value: list elements joined by commas, doubles in Java's format, None for
    null."""
    match value:
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case float():
            return java_double(value)
        case Password():
            return HIDDEN
        case None:
            return None
    return str(value)


def java_double(value: float) -> str:
    """Formats a number as Double.toString does: without an exponent from 10^-3 up to 10^7, and otherwise with an
    exponent that has no plus and no leading zeros."""
    if not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    # The fewest digits that represent the same number. 17 digits are always enough.
    rounded = (f"{value:.{count}e}" for count in range(1, 17))
    digits, _, exponent = next(text for text in rounded if float(text) == value).partition("e")
    return f"{digits}E{int(exponent)}"


def _typed(key: Key, text: str) -> Value:
    match key.type:
        case "boolean":
            return _boolean(text)
        case "short" | "int" | "long":
            return _integer(text, _BITS[key.type])
        case "double":
            return _double(text)
        case "list":
            return tuple(part.strip(" \t\n\v\f\r") for part in text.split(",")) if text else ()
        case "password":
            return Password(text)
    return text


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError
    return lowered == "true"


def _integer(text: str, bits: int) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    # Java refuses the underscores and blanks that int() accepts.
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError
    number = int(text)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError
    return number


def _double(text: str) -> float:
    bare = text.strip("+-")
    # float() accepts underscores, and several spellings of NaN and Infinity. Java accepts only one spelling of each.
    if "_" in text or (bare.lower() in ("inf", "nan", "infinity") and bare not in ("NaN", "Infinity")):
        raise ValueError
    return float(text[:-1] if text[-1:] in ("f", "F", "d", "D") and text[:-1] else text)


def _satisfies(check: str, value: Value, checks: list[str]) -> bool:
    if ".." in check:
        low, _, high = check.partition("..")
        assert isinstance(value, int | float)
        inside = (not low or value >= float(low)) and (not high or value <= float(high))
        return inside or f"or:{value}" in checks
    word, _, rest = check.partition(":")
    entries = value if isinstance(value, tuple) else (str(value),)
    match word:
        case "in":
            return all(entry in rest.split(",") for entry in entries)
        case "ci":
            return all(entry.upper() in rest.split(",") for entry in entries)
        case "nonempty":
            return bool(value)
        case "distinct":
            return all(entries)
        case "release":
            return _is_release(entries[0])
        case "replicas":
            return "".join(entries) == "*" or all(not each or parse_replica(each) for each in entries)
        case "reset":
            return entries[0] in ("latest", "earliest") or _is_by_duration(entries[0])
        case "voters" | "addresses" | "limits":
            return all(_PARSERS[word](entry) is not None for entry in entries)
    return word == "or"


def _is_release(text: str) -> bool:
    """Returns whether the text is a release from 0.8.0 to 3.9. The number of an intermediate version may follow."""
    numbers, dash, tail = text.partition("-IV")
    parts = numbers.split(".")
    if (dash and not tail.isdigit()) or not 2 <= len(parts) <= 4 or not all(part.isdigit() for part in parts):
        return False
    release = tuple(map(int, parts))
    return (0, 8, 0) <= release < (3, 10)


def _is_by_duration(text: str) -> bool:
    """Returns whether the text is `by_duration:` and an ISO 8601 duration that is not negative."""
    word, _, duration = text.partition(":")
    time = r"(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d{0,9})?S)?)?"
    return word == "by_duration" and re.fullmatch(rf"P(?=\d|T)(\d+D)?{time}", duration, re.IGNORECASE) is not None


def _words(check: str, type_name: str) -> str:
    if ".." in check:
        low, _, high = check.partition("..")
        return f"from {low} to {high}" if low and high else f"of at least {low}" if low else f"of at most {high}"
    word, _, rest = check.partition(":")
    if word == "or":
        return f"or {rest}"
    return {
        "nonempty": "and not empty" if type_name == "list" else "that is not empty",
        "distinct": "without empty entries",
        "release": "naming a Kafka release from 0.8.0 to 3.9, such as 3.9 or 3.9-IV0",
        "replicas": "of partition:broker entries, or *",
        "reset": "that is latest, earliest or by_duration:PnDTnHnMn.nS",
        "voters": "of id@host:port entries",
        "addresses": "of host:port entries",
        "limits": "of host:count entries",
    }.get(word, "")
