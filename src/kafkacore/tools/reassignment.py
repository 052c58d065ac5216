"""Plans of reassignments: the JSON files of kafka-reassign-partitions.sh, and the throttles that a plan needs (KIP-73).

A partition is `(topic, index)`. A plan maps each partition to its replicas, in the order of the file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkacore.tools.admin import AdminError
from kafkacore.tools.replica_moves import Directories, Place, ReplicaId

PartitionId = tuple[str, int]
Plan = dict[PartitionId, list[int]]
VERSION: Final = 1
ANY_DIRECTORY: Final = "any"
_NOWHERE: Final[Mapping[ReplicaId, Place]] = {}
# Example entries of the files. Error messages show them to the user.
_NOTHING: Final[Mapping[str, Any]] = {}
_TOPIC: Final = {"topic": "orders"}
_PLANNED: Final = {"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}
_PLACED: Final = {"log_dirs": ["any", "any", "any"]}


class Move(NamedTuple):
    """A move of a partition: the brokers that already have the partition's records, and the brokers that will get
    them."""

    sources: frozenset[int]
    destinations: frozenset[int]


class Throttles(NamedTuple):
    """The values of `*.replication.throttled.replicas` by topic, and the brokers that take part in the moves."""

    leaders: dict[str, str]
    followers: dict[str, str]
    brokers: list[int]


def read_file(path: str) -> Any:
    """Reads a JSON file. Raises AdminError, and OSError."""
    with open(path, encoding="utf-8") as file:
        try:
            return json.load(file)
        except ValueError as error:
            raise AdminError(f"{path} is not JSON: {error}") from None


def read_plan(path: str) -> tuple[Plan, Directories]:
    """Reads the plan in a --reassignment-json-file, and the log directories that it names. Raises AdminError, and
    OSError."""
    plan: Plan = {}
    directories: Directories = {}
    twice = []
    for each in entries(path, _versioned(read_file(path), path), "partitions", _PLANNED, _PLACED):
        partition, replicas = (each["topic"], each["partition"]), each["replicas"]
        directories |= _directories(partition, replicas, each)
        if partition in plan:
            twice.append(partition)
        plan[partition] = replicas
    _check(plan, twice)
    return plan, directories


def entries(
    path: str, parsed: Any, field: str, example: Mapping[str, Any], optional: Mapping[str, Any] = _NOTHING
) -> list[dict[str, Any]]:
    """Returns the list `field` of a file. Each entry has the fields of `example`, and may also have those of
    `optional`. The values have the same types as in these examples. Raises AdminError."""
    if not isinstance(parsed, dict):
        raise AdminError(f"{path} must contain a JSON object")
    found = parsed.get(field, [])
    if not isinstance(found, list):
        raise AdminError(f'{path}: "{field}" must be a list of entries like {json.dumps(example)}')
    for each in found:
        given = {name: optional[name] for name in optional if isinstance(each, dict) and name in each}
        if not _is_like(each, {**example, **given}):
            shown = json.dumps({**example, **given})
            raise AdminError(f'{path}: an entry of "{field}" must be like {shown}, not {json.dumps(each)}')
    return found


def _is_like(value: Any, example: Any) -> bool:
    if type(value) is not type(example):
        return False
    if isinstance(example, dict):
        return all(name in value and _is_like(value[name], each) for name, each in example.items())
    return not isinstance(example, list) or all(_is_like(each, example[0]) for each in value)


def _directories(partition: PartitionId, replicas: Sequence[int], fields: Mapping[str, Any]) -> Directories:
    paths = fields.get("log_dirs", [ANY_DIRECTORY] * len(replicas))
    if len(paths) != len(replicas):
        raise AdminError(
            f"Size of replicas list {list(replicas)} is different from size of log dirs list [{', '.join(paths)}] for "
            f"partition {text_of(partition)}"
        )
    return {
        ReplicaId(*partition, broker_id): path
        for broker_id, path in zip(replicas, paths, strict=True)
        if path != ANY_DIRECTORY
    }


def read_topics(path: str) -> list[str]:
    """Reads the topics in a --topics-to-move-json-file. Raises AdminError, and OSError."""
    topics = [each["topic"] for each in entries(path, _versioned(read_file(path), path), "topics", _TOPIC)]
    if not topics:
        raise AdminError(f'{path} names no topic: "topics" must be a list of entries like {json.dumps(_TOPIC)}')
    if repeated := _repeated(topics):
        raise AdminError(f"List of topics to reassign contains duplicate entries: [{', '.join(repeated)}]")
    return topics


def read_brokers(text: str) -> list[int]:
    """Reads the broker ids of --broker-list. Raises AdminError."""
    try:
        brokers = [int(each) for each in text.split(",")]
    except ValueError:
        raise AdminError(f"--broker-list {text!r} must be broker ids, separated by commas") from None
    if repeated := _repeated(brokers):
        raise AdminError(f"Broker list contains duplicate entries: [{', '.join(map(str, repeated))}]")
    return brokers


def plan_as_json(plan: Mapping[PartitionId, Sequence[int]], places: Mapping[ReplicaId, Place] = _NOWHERE) -> str:
    partitions = [
        {
            "topic": topic,
            "partition": index,
            "replicas": list(plan[topic, index]),
            "log_dirs": [_directory(places, ReplicaId(topic, index, each)) for each in plan[topic, index]],
        }
        for topic, index in sorted(plan)
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"))


def _directory(places: Mapping[ReplicaId, Place], replica: ReplicaId) -> str:
    place = places.get(replica)
    return ANY_DIRECTORY if place is None or place.current is None else place.current


def throttles_of(under_way: Mapping[PartitionId, Move], plan: Plan, current: Plan) -> Throttles:
    """Returns the throttles for the moves in progress and for the moves of the plan. A partition that is already moving
    keeps its source brokers."""
    moves = dict(under_way)
    for partition, replicas in plan.items():
        sources = moves[partition].sources if partition in moves else frozenset(current[partition])
        moves[partition] = Move(sources, frozenset(replicas) - sources)
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    brokers: set[int] = set()
    for (topic, index), move in moves.items():
        leaders.setdefault(topic, set()).update(f"{index}:{each}" for each in move.sources)
        followers.setdefault(topic, set()).update(f"{index}:{each}" for each in move.destinations - move.sources)
        brokers |= move.sources | move.destinations
    return Throttles(_joined(leaders), _joined(followers), sorted(brokers))


def text_of(partition: PartitionId) -> str:
    return f"{partition[0]}-{partition[1]}"


def listed(partitions: Iterable[PartitionId]) -> str:
    return ",".join(map(text_of, sorted(partitions)))


def _joined(values: Mapping[str, set[str]]) -> dict[str, str]:
    return {topic: ",".join(sorted(each)) for topic, each in values.items()}


def _versioned(parsed: Any, path: str) -> dict[str, Any]:
    if not isinstance(parsed, dict):
        raise AdminError(f"{path} must contain a JSON object")
    if parsed.get("version", VERSION) != VERSION:
        raise AdminError(f"Not supported version field value {parsed['version']}")
    return parsed


def _check(plan: Plan, twice: Sequence[PartitionId]) -> None:
    if not plan:
        raise AdminError("Partition reassignment list cannot be empty")
    if not all(plan.values()):
        raise AdminError("Partition replica list cannot be empty")
    if twice:
        raise AdminError(f"Partition reassignment contains duplicate topic partitions: {listed(set(twice))}")
    wrong = [
        f"{text_of(partition)} contains multiple entries for {','.join(map(str, repeated))}"
        for partition, replicas in plan.items()
        if (repeated := _repeated(replicas))
    ]
    if wrong:
        raise AdminError(f"Partition replica lists may not contain duplicate entries: {'. '.join(wrong)}")


def _repeated(values: Sequence[Any]) -> list[Any]:
    return [value for value, count in Counter(values).items() if count > 1]
