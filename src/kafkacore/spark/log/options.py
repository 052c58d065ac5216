"""The options of `format("kafkacore-log")`."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkacore.spark.errors import OptionError
from kafkacore.storage.names import Kind

TABLES: Final = ("records", "batches", "groups", "transactions", "metadata", "segments", "indexes", "checkpoints")
INDEX_TYPES: Final = ("offset", "time", "transaction")
KINDS: Final = {"future": Kind.FUTURE, "delete": Kind.DELETE, "stray": Kind.STRAY}
ROWS: Final = "rows"
FAIL: Final = "fail"
_SPELLED: Final = (
    "path", "table", "topics", "topicPattern", "include", "indexTypes", "onCorrupt", "columns", "includeHeaders",
    "splitBytes", "pushFilters",
)  # fmt: skip
_KNOWN: Final = frozenset(name.lower() for name in _SPELLED)
_DEFAULT_SPLIT_BYTES: Final = 128 << 20
_LEAST_SPLIT_BYTES: Final = 1 << 20


class LogOptions(NamedTuple):
    """A table, and the directories from which it is read. With `corrupt_rows`, damage becomes a row with a `problem`
    instead of an error."""

    paths: tuple[str, ...]
    table: str
    topics: frozenset[str] | None
    pattern: str | None
    kinds: frozenset[Kind]
    index_types: frozenset[str]
    corrupt_rows: bool
    columns: tuple[str, ...]
    include_headers: bool
    split_bytes: int
    push_filters: bool

    def wants(self, topic: str) -> bool:
        """Returns whether the options select rows of this topic."""
        if self.topics is not None and topic not in self.topics:
            return False
        return self.pattern is None or re.fullmatch(self.pattern, topic) is not None


def log_options(given: Mapping[str, str]) -> LogOptions:
    """Reads the options. Their names are not case-sensitive.

    Raises:
        OptionError: an option is unknown, missing or invalid; the text says what is allowed.
    """
    options = {name.lower(): value for name, value in given.items()}
    unknown = sorted(name for name in given if name.lower() not in _KNOWN)
    if unknown:
        raise OptionError(f"format kafkacore-log has no option {unknown[0]}: its options are {', '.join(_SPELLED)}")
    if not _items(options.get("path")):
        raise OptionError("option path is missing: name log directories, separated by commas")
    return LogOptions(
        paths=_items(options["path"]),
        table=_choice("table", options.get("table", "records"), TABLES),
        topics=frozenset(_items(options["topics"])) if "topics" in options else None,
        pattern=_pattern(options.get("topicpattern")),
        kinds=frozenset(
            {Kind.LIVE, *(KINDS[_choice("include", one, KINDS)] for one in _items(options.get("include")))}
        ),
        index_types=frozenset(
            _choice("indexTypes", one, INDEX_TYPES) for one in _items(options.get("indextypes")) or INDEX_TYPES
        ),
        corrupt_rows=_choice("onCorrupt", options.get("oncorrupt", FAIL), (FAIL, ROWS)) == ROWS,
        columns=_items(options.get("columns")),
        include_headers=_choice("includeHeaders", options.get("includeheaders", "false"), ("true", "false")) == "true",
        split_bytes=_bytes(options.get("splitbytes")),
        push_filters=_choice("pushFilters", options.get("pushfilters", "false"), ("true", "false")) == "true",
    )


def _items(text: str | None) -> tuple[str, ...]:
    return tuple(item.strip() for item in (text or "").split(",") if item.strip())


def _choice(name: str, value: str, allowed: Mapping[str, object] | tuple[str, ...]) -> str:
    if value.strip().lower() not in allowed:
        raise OptionError(f"option {name} is {value!r}, but must be one of {', '.join(allowed)}")
    return value.strip().lower()


def _pattern(text: str | None) -> str | None:
    if text is not None:
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"option topicPattern {text!r} is not a regular expression: {error}") from None
    return text


def _bytes(text: str | None) -> int:
    if text is None:
        return _DEFAULT_SPLIT_BYTES
    if not text.strip().isdigit() or int(text) < _LEAST_SPLIT_BYTES:
        raise OptionError(f"option splitBytes is {text!r}, but must be {_LEAST_SPLIT_BYTES} bytes or more")
    return int(text)
