"""Loads Apache Kafka's message tables on demand, joins the tables of two releases, and normalises them for the schema
compiler.

The tables are files under `protocol/tables`, with one JSON object per line. Parsing all 500 tables would slow a start,
so this module finds and parses a line when its message is first used. A message has the table of Kafka 4.3. The table
of Kafka 3.9 adds the versions that 4.3 no longer has, and the messages that 4.x dropped. Coordinator records use only
the tables of 4.3. Kafka 3.9 writes the same bytes with other version numbers: the version of a key in 3.9 is its
`api_key` in 4.3.

The file `apis.tsv` in the same directory lists, for every API, the facts that a node needs when it starts.
`ci/stubs.py` generates this file from the tables.

Field names are converted to Python's style: `TopicData` becomes `topic_data`, and `Enable2Pc` becomes `enable_2pc`.
`KRaft` counts as one word.
"""

from __future__ import annotations

import itertools
import json
import os
import string
from functools import cache
from typing import Any, Final, NamedTuple

TABLES: Final = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "protocol", "tables")
CURRENT: Final = "kafka-4.3"
FORMER: Final = "kafka-3.9"
FOREVER: Final = 0x7FFF  # the upper end of "3+"

# The files that may contain a message, by the suffix of the message's name. For a name with another suffix, every file
# is searched.
_FILES: Final = {
    "Request": ("clients.request.jsonl",),
    "Response": ("clients.response.jsonl",),
    "Header": ("clients.header.jsonl",),
    "Record": ("metadata.metadata.jsonl", "clients.data.jsonl"),
}


class Versions(NamedTuple):
    """An inclusive range of versions. It is empty if `highest < lowest`."""

    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest

    @property
    def empty(self) -> bool:
        return self.highest < self.lowest


NO_VERSIONS: Final = Versions(0, -1)


class Field(NamedTuple):
    """A field as the schema table defines it. `name` is the Python name."""

    name: str
    kind: str  # a primitive's name, "struct" or "array"
    element: str  # for an array: the name of a primitive, or "struct"
    struct: str  # the name of the struct, or ""
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: Any  # int, float, bool, str or None; "" for structs, arrays, bytes and uuids that are not null
    ignorable: bool
    never_flexible: bool  # not compact even in flexible versions: the client id of a request header


class ApiRow(NamedTuple):
    """One API of one release. Its stable versions are `lowest` to `highest`. If `highest < lowest`, the API has no
    stable version."""

    key: int
    message: str  # without its suffix, for example CreateTopics for CreateTopicsRequest and CreateTopicsResponse
    lowest: int
    highest: int
    flexible: int  # the first flexible version of the request; above FOREVER if there is none
    flexible_response: int
    listeners: str  # separated by commas: "broker", "controller", and in 3.9 also "zkBroker"


class Table(NamedTuple):
    """One message of one release."""

    name: str
    kind: str  # request, response, header, metadata, data, coordinator-key, coordinator-value
    api_key: int  # -1 if there is none
    versions: Versions
    flexible: Versions
    unstable: bool  # latestVersionUnstable
    listeners: tuple[str, ...]
    structs: dict[str, tuple[Field, ...]]  # by name; the message itself comes first


class Message:
    """A message, joined over all releases. `tables` begins with the newest release. Each table applies to the versions
    that the tables before it do not have."""

    __slots__ = ("_structs", "name", "tables", "versions")

    def __init__(self, name: str, tables: tuple[tuple[Versions, Table], ...]) -> None:
        self.name = name
        self.tables = tables
        self.versions = Versions(tables[-1][0].lowest, tables[0][0].highest)
        self._structs: dict[str, list[Field]] | None = None

    def table(self, version: int) -> Table | None:
        """Returns the table that applies to `version`, or None if no release has that version."""
        return next((table for versions, table in self.tables if version in versions), None)

    def changes(self) -> frozenset[int]:
        """Returns the versions whose format may differ from the format of the previous version. At these versions, the
        version range of the message or of a field begins or ends."""
        ranges = [versions for versions, _ in self.tables]
        for _, table in self.tables:
            ranges.append(table.flexible)
            for field in itertools.chain.from_iterable(table.structs.values()):
                ranges += (field.versions, field.nullable, field.tagged)
        return frozenset([each.lowest for each in ranges] + [each.highest + 1 for each in ranges])

    def structs(self) -> dict[str, list[Field]]:
        """Returns every struct with all fields that it has in any release. The fields of the newest release come
        first."""
        if self._structs is None:
            self._structs = self._join()
        return self._structs

    def _join(self) -> dict[str, list[Field]]:
        joined: dict[str, dict[str, Field]] = {}
        for versions, table in self.tables:
            for name, fields in table.structs.items():
                known = joined.setdefault(name, {})
                for field in fields:
                    if table is self.tables[0][1] or _overlap(field.versions, versions):
                        known.setdefault(field.name, field)
        return {name: list(fields.values()) for name, fields in joined.items() if fields or name == self.name}


_WORDS: Final = {ord(letter): f"_{letter.lower()}" for letter in string.ascii_uppercase}


@cache
def python_name(name: str) -> str:
    """Returns the attribute name for a table's field name."""
    name = name.replace("KRaft", "Kraft").replace("2Pc", "_2pc")
    words = name.translate(_WORDS).removeprefix("_").split("_")
    # Consecutive capitals form one word, but if a lower-case letter follows, the last capital belongs to the next word.
    # This code uses no regular expression, because compiling one would take a tenth of the time of a start.
    if min(map(len, words)) > 1:
        return "_".join(words)
    made = name[:1]
    for before, each, after in zip(name, name[1:], name[2:] + "A", strict=False):
        if each.isupper() and (not (before.isupper() or before == "_") or after.islower()):
            made += "_"
        made += each
    return made.lower()


@cache
def message(name: str) -> Message:
    """Returns the message with this name, joined over all releases. Raises KeyError if no release has a message with
    that name."""
    current = release_table(CURRENT, name)
    former = release_table(FORMER, name) if current is None or _has_older_versions(current) else None
    tables: list[tuple[Versions, Table]] = []
    if current is not None and not current.versions.empty:
        tables.append((current.versions, current))
    if former is not None:
        versions = former.versions
        if tables:
            versions = Versions(versions.lowest, min(versions.highest, tables[0][0].lowest - 1))
        if not versions.empty:
            tables.append((versions, former))
    if not tables:
        raise KeyError(name)
    return Message(name, tuple(tables))


def current_message(name: str) -> Message:
    """Returns the message without the versions that the current release dropped. Raises KeyError if no version
    is left."""
    table = release_table(CURRENT, name)
    if table is None or table.versions.empty:
        raise KeyError(name)
    return Message(name, ((table.versions, table),))


def _has_older_versions(current: Table) -> bool:
    """Returns whether the former release can have versions that the current release lacks."""
    return not current.kind.startswith("coordinator") and (current.versions.empty or current.versions.lowest > 0)


def release_table(release: str, name: str) -> Table | None:
    """Returns the table of a message in one release, or None."""
    source = _source(release, name)
    return None if source is None else _table(source)


def spellings(name: str) -> dict[str, dict[str, str]]:
    """Returns, for each struct of a message, a dict from the Python names of its fields to the names in the tables. Use
    these names only for output."""
    found: dict[str, dict[str, str]] = {}
    for source in filter(None, (_source(CURRENT, name), _source(FORMER, name))):
        _spell(name, source.get("fields", []), found)
        for common in source.get("commonStructs", []):
            _spell(common["name"], common["fields"], found)
    return found


def _spell(struct: str, fields: list[dict[str, Any]], found: dict[str, dict[str, str]]) -> None:
    for field in fields:
        found.setdefault(struct, {}).setdefault(python_name(field["name"]), field["name"])
        if "fields" in field:
            _spell(field["type"].removeprefix("[]"), field["fields"], found)


def _source(release: str, name: str) -> dict[str, Any] | None:
    """Returns the parsed line of a message, or None if the release does not have the message."""
    likely = next((files for suffix, files in _FILES.items() if name.endswith(suffix)), None)
    needle = f'"name":"{name}",'.encode()
    for file in likely or _files(release):
        content = _read(release, file)
        at = content.find(needle)
        while at >= 0:
            start = content.rfind(b"\n", 0, at) + 1
            if content.find(b'"fields":', start, at) < 0:  # this is the name of a message, not of a field or struct
                end = content.find(b"\n", at)
                found: dict[str, Any] = json.loads(content[start : end if end >= 0 else len(content)])
                return found
            at = content.find(needle, at + 1)
    return None


@cache
def apis(release: str) -> tuple[ApiRow, ...]:
    """Returns the APIs of a release, one for each line of `apis.tsv`. Leaves out the APIs that the release dropped."""
    lines = _read(release, "apis.tsv").decode().splitlines()[1:]
    return tuple(
        ApiRow(int(key), message, int(lowest), int(highest), _first(flexible), _first(flexible_response), listeners)
        for key, message, lowest, highest, flexible, flexible_response, listeners in (
            line.split("\t") for line in lines
        )
    )


def _first(version: str) -> int:
    return FOREVER + 1 if version == "-" else int(version)


@cache
def heads(release: str, file: str) -> tuple[dict[str, Any], ...]:
    """Returns each line of a file, without the list of fields. Only tests and generators use this function."""
    split = (line.partition(b',"fields":') for line in _read(release, file).splitlines())
    # One call parses all lines. A separate call for each line would take three times as long.
    return tuple(json.loads(b"[%b]" % b",".join(head + b"}" if found else head for head, found, _ in split)))


def names() -> list[str]:
    """Returns the name of every message of every release, sorted. Only tests and generators should use this function,
    because it reads all tables."""
    found = {head["name"] for release in (CURRENT, FORMER) for file in _files(release) for head in heads(release, file)}
    return sorted(found)


@cache
def parse_versions(text: str | None) -> Versions:
    """Parses a range of versions: `"3+"`, `"0-7"`, `"5"` or `"none"`."""
    if text is None or text == "none":
        return NO_VERSIONS
    lowest, dash, highest = text.partition("-")
    if dash:
        return Versions(int(lowest), int(highest))
    if text.endswith("+"):
        return Versions(int(text[:-1]), FOREVER)
    return Versions(int(text), int(text))


@cache
def _files(release: str) -> tuple[str, ...]:
    return tuple(sorted(file for file in os.listdir(os.path.join(TABLES, release)) if file.endswith(".jsonl")))


@cache
def _read(release: str, file: str) -> bytes:
    with open(os.path.join(TABLES, release, file), "rb") as table:
        return table.read()


def _table(source: dict[str, Any]) -> Table:
    structs: dict[str, tuple[Field, ...]] = {source["name"]: ()}
    _collect(source["name"], source.get("fields", []), structs)
    for common in source.get("commonStructs", []):
        _collect(common["name"], common["fields"], structs)
    return Table(
        name=source["name"],
        kind=source["type"],
        api_key=source.get("apiKey", -1),
        versions=parse_versions(source["validVersions"]),
        flexible=parse_versions(source.get("flexibleVersions")),
        unstable=source.get("latestVersionUnstable", False),
        listeners=tuple(source.get("listeners", ())),
        structs=structs,
    )


def _collect(name: str, fields: list[dict[str, Any]], structs: dict[str, tuple[Field, ...]]) -> None:
    structs[name] = tuple(_field(field) for field in fields)
    for field in fields:
        if "fields" in field:
            _collect(field["type"].removeprefix("[]"), field["fields"], structs)


def _field(source: dict[str, Any]) -> Field:
    get = source.get
    inner = source["type"].removeprefix("[]")
    is_array = inner != source["type"]
    # The names of primitives begin with a lower-case letter. The names of structs begin with a capital.
    struct = inner if inner[0].isupper() else ""
    element = "struct" if struct else inner
    kind = "array" if is_array else element
    tagged = parse_versions(get("taggedVersions"))
    # Positional arguments are faster, which matters because a node creates four hundred fields when it starts.
    return Field(
        python_name(source["name"]),
        kind,
        element if is_array else "",
        struct,
        parse_versions(source["versions"]) if "versions" in source else tagged,
        parse_versions(get("nullableVersions")),
        tagged,
        int(get("tag", -1)),
        _default(kind, source["default"]) if "default" in source else _USUAL.get(kind, 0),
        bool(get("ignorable", False)),
        get("flexibleVersions") == "none",
    )


def _default(kind: str, default: Any) -> Any:
    # The tables write a default as a JSON value or as a string, which can be hexadecimal. As in Kafka's generator, a
    # JSON null means no default, and the string "null" makes null the default.
    if default == "null" and kind in _NULLABLE_KINDS:
        return None
    if default is None or default == "":
        return _USUAL.get(kind, 0)
    if kind == "bool":
        return default in (True, "true")
    if kind == "float64":
        return float(default)
    if kind in _USUAL:
        return str(default)
    return int(default, 0) if isinstance(default, str) else int(default)


# The defaults of kinds other than integers, if the table gives none.
_USUAL: Final = {
    "bool": False, "float64": 0.0, "uuid": "", "string": "", "bytes": "", "records": "", "struct": "", "array": "",
}  # fmt: skip
_NULLABLE_KINDS: Final = frozenset({"string", "bytes", "records", "struct", "array"})


def _overlap(a: Versions, b: Versions) -> bool:
    return max(a.lowest, b.lowest) <= min(a.highest, b.highest)
