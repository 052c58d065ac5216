"""The tables of configuration keys. Each key has one line. A process only splits a table into lines at first, and
parses the line of a key when it first reads the key, because a node reads only about sixty of the four hundred keys.
Columns:

key         Kafka's name
type        boolean, int, long, short, double, string, list, class, password
default     our default, written as in a file; `null` for none, `!` if Kafka demands a value
check       the rules for a value, see `kafkacore.config.values`
importance  high, medium, low
mode        read-only, per-broker or cluster-wide (for a broker's key): where a dynamic change applies
generation  the release of Kafka that has the key: `3.9`, `4.3` or `both`; `own` if only kafkacore has it
honoured    whether kafkacore acts on the key, or only validates it; *_without_effect.tsv has the reasons
kind        internal (DescribeConfigs shows it only if it is set), dynamic-only (not for server.properties), or -
3.9         the differences in 3.9, as `type=...;default=...;mode=...;check=...`
broker      (for a topic's or group's key) the broker's keys with the same meaning, by precedence; KEY*N multiplies by N
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

_TABLES: Final = os.path.join(os.path.dirname(__file__), "tables")
_ALIKE: Final = 0.85  # a name counts as a typing mistake if its ratio in difflib is above this value


class Key:
    """One row of a table. `default` is text, or None for Kafka's null. A `required` key has no default.

    `broker_keys` contains the names and factors of the broker's keys from which a topic's or group's key inherits.
    """

    __slots__ = (
        "broker_keys",
        "check",
        "default",
        "dynamic_only",
        "generation",
        "honoured",
        "importance",
        "internal",
        "mode",
        "name",
        "required",
        "type",
    )

    def __init__(self, row: dict[str, str], *, old: bool) -> None:
        if old and row["3.9"] != "-":
            row |= dict(change.split("=", 1) for change in row["3.9"].split(";"))
        self.name = row["key"]
        self.type = row["type"]
        self.required = row["default"] == "!"
        self.default = None if row["default"] in ("null", "!") else row["default"]
        self.check = row["check"]
        self.importance = row["importance"]
        self.mode = row.get("mode", "cluster-wide")
        self.generation = row["generation"]
        self.honoured = row["honoured"] == "yes"
        self.internal = row["kind"] == "internal"
        self.dynamic_only = row["kind"] == "dynamic-only"
        inherited = row.get("broker", "-")
        self.broker_keys = () if inherited == "-" else tuple(map(_broker_key, inherited.split(",")))

    def __repr__(self) -> str:
        return f"Key({self.name!r}, {self.type}, default={self.default!r})"

    @property
    def dynamic(self) -> bool:
        return self.mode != "read-only"


def _broker_key(text: str) -> tuple[str, int]:
    name, _, factor = text.partition("*")
    return name, int(factor or 1)


class Keys:
    """A table of keys, by name. With `old`, each key has its type, default and check of Kafka 3.9 (ZooKeeper mode)."""

    def __init__(self, name: str, *, old: bool = False) -> None:
        self._file = os.path.join(_TABLES, f"{name}.tsv")
        self._documentation_file = os.path.join(_TABLES, f"{name}_documentation.tsv")
        self._reasons_file = os.path.join(_TABLES, f"{name}_without_effect.tsv")
        self._old = old
        self._lines: dict[str, str] = {}
        self._columns: list[str] = []
        self._keys: dict[str, Key] = {}
        self._documentation: dict[str, str] = {}
        self._reasons: dict[str, str] = {}  # reason by the prefix of a key's name

    def __contains__(self, name: object) -> bool:
        return name in self._keys or name in self._table()

    def __iter__(self) -> Iterator[Key]:
        for name in self._table():
            yield self[name]

    def __len__(self) -> int:
        return len(self._table())

    def __getitem__(self, name: str) -> Key:
        """Returns the row of a key. Raises KeyError for an unknown key."""
        key = self._keys.get(name)
        if key is None:
            line = self._table()[name]
            key = self._keys[name] = Key(dict(zip(self._columns, line.split("\t"), strict=True)), old=self._old)
        return key

    def get(self, name: str) -> Key | None:
        return self._keys.get(name) or (self[name] if name in self._table() else None)

    def names(self) -> Iterator[str]:
        return iter(self._table())

    def unknown(self, name: str) -> str:
        """Returns the message about an unknown key. The message suggests the most similar known key, if there is
        one."""
        close = get_close_matches(name, self._table(), n=1, cutoff=_ALIKE)
        return f"{name}: unknown key, kept but not used" + "".join(f"; do you mean {each}?" for each in close)

    def documentation(self, name: str) -> str:
        """Returns the description of a key in one or two sentences, as DescribeConfigs shows it."""
        if not self._documentation:
            self._documentation = _lines(self._documentation_file)[1]
        return self._documentation.get(name, "")

    def reason(self, name: str) -> str:
        """Returns the reason why a key that is not honoured has no effect. The reason is empty if the table has
        none."""
        if not self._reasons:
            self._reasons = _lines(self._reasons_file)[1]
        prefixes = [prefix for prefix in self._reasons if name.startswith(prefix)]
        return self._reasons[max(prefixes, key=len)] if prefixes else ""

    def _table(self) -> dict[str, str]:
        if not self._lines:
            head, lines = _lines(self._file)
            # Threads share this table. A thread that finds `_lines` must also find `_columns`.
            self._columns = head.split("\t")
            self._lines = lines
        return self._lines


def _lines(path: str) -> tuple[str, dict[str, str]]:
    """Returns the heading, and the lines by their first column. In a table with two columns, the returned lines contain
    only the second column."""
    with open(path, encoding="utf-8") as file:
        head, *lines = file.read().splitlines()
    if head.count("\t") == 1:
        return head, dict(line.split("\t", 1) for line in lines)
    return head, {line[: line.index("\t")]: line for line in lines}


BROKER: Final = Keys("broker")
BROKER_3_9: Final = Keys("broker", old=True)
TOPIC: Final = Keys("topic")
TOPIC_3_9: Final = Keys("topic", old=True)
GROUP: Final = Keys("group")
CLIENT_METRICS: Final = Keys("client_metrics")
