"""Offsets of topic partitions, and the JSON forms in which Spark's Kafka connector writes and reads them.

A stream's offset is `{"topic": {"0": 23}}`, as in the connector. In kafkacore, the object may also contain the topics'
ids, under a key that is not a valid topic name. The ids let a restarted query recognise a topic that was deleted and
created again.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafkacore.spark.errors import CheckpointError, OptionError

TopicPartition = tuple[str, int]
Positions = dict[TopicPartition, int]

EARLIEST: Final = -2
LATEST: Final = -1
TOPIC_IDS: Final = "topic ids"  # no topic name contains a space
MAX_OFFSET: Final = (1 << 63) - 1
MAX_PARTITION: Final = (1 << 31) - 1
_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def parse_json(option: str, text: str) -> Any:
    """Parses JSON. Refuses an object that contains the same key twice, because one of the two values would be lost."""

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
            raise OptionError(f"option {option} names {twice!r} twice in one JSON object")
        return found

    try:
        return json.loads(text, object_pairs_hook=no_duplicates)
    except (json.JSONDecodeError, RecursionError) as error:
        raise OptionError(f"option {option} is not JSON: {error}") from error


def topic_name(option: str, name: Any) -> str:
    if not isinstance(name, str) or not _TOPIC.fullmatch(name) or name in {".", ".."}:
        raise OptionError(f"option {option} names {name!r}, which is no topic name")
    return name


def parse_assignment(option: str, text: str) -> frozenset[TopicPartition]:
    """Returns the partitions in `{"topic": [0, 1]}`."""
    given = parse_json(option, text)
    form = f'option {option} must be JSON of the form {{"topic": [0, 1]}}'
    if not isinstance(given, dict) or not given:
        raise OptionError(form)
    found = set()
    for topic, partitions in given.items():
        if not isinstance(partitions, list):
            raise OptionError(f"{form}; {topic!r} has no list")
        for partition in partitions:
            if type(partition) is not int or not 0 <= partition <= MAX_PARTITION:
                raise OptionError(f"{form}; {partition!r} of {topic!r} is no partition")
            found.add((topic_name(option, topic), partition))
    if not found:
        raise OptionError(f"{form}; it names no partition")
    return frozenset(found)


def parse_positions(option: str, text: str, *, least: int, what: str) -> Positions:
    """Returns the positions in `{"topic": {"0": 23}}`. Each position must be at least `least`. Error messages use
    `what` as the name of such a number."""
    given = parse_json(option, text)
    form = f'option {option} must be JSON of the form {{"topic": {{"0": 23}}}}'
    if not isinstance(given, dict):
        raise OptionError(form)
    found: Positions = {}
    for topic, partitions in given.items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{form}; {topic!r} has no object")
        for partition, number in partitions.items():
            if not _NUMBER.fullmatch(partition) or int(partition) > MAX_PARTITION:
                raise OptionError(f"{form}; {partition!r} of {topic!r} is no partition")
            if type(number) is not int or not least <= number <= MAX_OFFSET:
                raise OptionError(f"{form}; {number!r} of {topic}-{partition} is no {what}")
            found[topic_name(option, topic), int(partition)] = number
    return found


def to_json_object(
    positions: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Returns the object that Spark writes into a checkpoint. Equal content gives the same order of keys, because Spark
    compares the text."""
    found: dict[str, Any] = {}
    for (topic, partition), offset in sorted(positions.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    if topic_ids:
        found[TOPIC_IDS] = dict(sorted(topic_ids.items()))
    return found


def from_json_object(given: Any) -> tuple[Positions, dict[str, str]]:
    """Returns the positions and topic ids from an object that Spark read from a checkpoint. An object that the
    connector `kafka` wrote contains no ids.

    :raises CheckpointError: another source wrote the object.
    """
    positions: Positions = {}
    ids: dict[str, str] = {}
    if not isinstance(given, dict):
        raise CheckpointError(_foreign(given))
    for topic, partitions in given.items():
        if not isinstance(partitions, dict):
            raise CheckpointError(_foreign(given))
        if topic == TOPIC_IDS:
            ids = {str(name): str(topic_id) for name, topic_id in partitions.items()}
            continue
        for partition, offset in partitions.items():
            valid = _TOPIC.fullmatch(topic) and _NUMBER.fullmatch(partition) and type(offset) is int
            if not valid or not 0 <= offset <= MAX_OFFSET:
                raise CheckpointError(_foreign(given))
            positions[topic, int(partition)] = offset
    return positions, ids


def _foreign(given: Any) -> str:
    return (
        f"the checkpoint holds {json.dumps(given)[:200]} for this source, but neither kafkacore nor Spark's Kafka"
        " connector writes such offsets: the checkpoint belongs to a query with another source; use another "
        "checkpointLocation"
    )


def names(partitions: Iterable[TopicPartition], most: int = 20) -> str:
    """Returns the partitions as `a-0, a-1`, cut off after `most` names."""
    ordered = [f"{topic}-{partition}" for topic, partition in sorted(partitions)]
    return ", ".join(ordered[:most]) + (f" and {len(ordered) - most} more" if len(ordered) > most else "")
