"""Files with reassignment plans, and the throttles of a reassignment."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kafkacore.tools.admin import AdminError
from kafkacore.tools.main import main
from kafkacore.tools.reassignment import Move, plan_as_json, read_brokers, read_plan, read_topics, throttles_of
from kafkacore.tools.replica_moves import Place, ReplicaId, is_done, line_of

LIKE = 'an entry of "partitions" must be like {"topic": "orders", "partition": 0, "replicas": [1, 2, 3]'


def written(path: Path, content: Any) -> str:
    file = path / "plan.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(file)


def partitions(*each: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "partitions": list(each)}


def test_plan_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    plan = {("b", 1): [3, 1], ("a", 10): [1, 2], ("a", 9): [2]}
    text = plan_as_json(plan)
    assert text.startswith(
        '{"version":1,"partitions":[{"topic":"a","partition":9,"replicas":[2],"log_dirs":["any"]},'
        '{"topic":"a","partition":10,"replicas":[1,2],"log_dirs":["any","any"]}'
    )
    assert read_plan(written(tmp_path, text)) == (plan, {})


def test_plan_names_directories_where_they_are_known(tmp_path: Path) -> None:
    replica = ReplicaId("t", 0, 1)
    text = plan_as_json({("t", 0): [1, 2]}, {replica: Place("/d")})
    assert '"log_dirs":["/d","any"]' in text
    assert read_plan(written(tmp_path, text)) == ({("t", 0): [1, 2]}, {replica: "/d"})


@pytest.mark.parametrize(
    ("place", "line", "done"),
    [
        (Place("/b"), "Reassignment of replica t-0-1 completed successfully.", True),
        (Place("/a", "/b"), "Reassignment of replica t-0-1 is still in progress.", False),
        (Place("/a", "/c"), "Partition t-0 on broker 1 is being moved to log dir /c instead of /b.", False),
        (Place("/a"), "Partition t-0 on broker 1 is not being moved from log dir /a to /b.", True),
        (Place(), "Partition t-0 is not found in any live log dir on broker 1. ", False),
    ],
)
def test_move_between_directories_is_described_by_its_state(place: Place, line: str, done: bool) -> None:
    assert line_of(ReplicaId("t", 0, 1), "/b", place).startswith(line)
    assert is_done(place) is done


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "must contain a JSON object"),
        ({"version": 2}, "Not supported version field value 2"),
        (partitions(), "list cannot be empty"),
        (partitions({"topic": "t", "partition": 0, "replicas": []}), "replica list cannot be empty"),
        ({"partitions": {"t": 0}}, '"partitions" must be a list of entries like {"topic": "orders", '),
        ({"partitions": None}, '"partitions" must be a list of entries like {"topic": "orders", '),
        (partitions({"topic": "t", "replicas": [1]}), f'{LIKE}}}, not {{"topic": "t", "replicas": [1]}}'),
        (
            partitions({"topic": "t", "partition": "0", "replicas": [1]}),
            f'{LIKE}}}, not {{"topic": "t", "partition": "0"',
        ),
        (partitions({"topic": "t", "partition": 0, "replicas": "12"}), f'{LIKE}}}, not {{"topic": "t", "partition": 0'),
        (
            partitions({"topic": "t", "partition": 0, "replicas": [True]}),
            f'{LIKE}}}, not {{"topic": "t", "partition": 0',
        ),
        (
            partitions({"topic": "t", "partition": 0, "replicas": [1], "log_dirs": None}),
            f'{LIKE}, "log_dirs": ["any", "any", "any"]}}, not {{"topic": "t"',
        ),
        (partitions({"topic": "t", "partition": 0, "replicas": [1, 1]}), "t-0 contains multiple entries for 1"),
        (partitions(*[{"topic": "t", "partition": 0, "replicas": [1]}] * 2), "duplicate topic partitions: t-0"),
        (
            partitions({"topic": "t", "partition": 0, "replicas": [1], "log_dirs": []}),
            "different from size of log dirs",
        ),
    ],
)
def test_plan_is_refused_when_it_is_malformed(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(AdminError, match=re.escape(message)):
        read_plan(written(tmp_path, content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"topic": [{"topic": "t"}]}, 'names no topic: "topics" must be a list of entries like {"topic": "orders"}'),
        ({"topics": ["t"]}, 'an entry of "topics" must be like {"topic": "orders"}, not "t"'),
        ({"topics": "t"}, '"topics" must be a list of entries like {"topic": "orders"}'),
    ],
)
def test_topics_are_refused_when_their_file_is_malformed(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(AdminError, match=re.escape(message)):
        read_topics(written(tmp_path, content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "must contain a JSON object"),
        (
            {"partitions": []},
            'names no partition: "partitions" must be a list of entries like {"topic": "orders", "part',
        ),
        ({"partitions": [{"topic": "t"}]}, 'must be like {"topic": "orders", "partition": 0}, not {"topic": "t"}'),
    ],
)
def test_election_is_refused_when_its_file_is_malformed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: Any, message: str
) -> None:
    file = written(tmp_path, content)
    where = ["--bootstrap-server", "localhost:1", "--election-type", "preferred", "--path-to-json-file", file]
    assert main(["leader-election", *where]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--execute"], "--execute needs --reassignment-json-file"),
        (["--list", "--additional"], "--additional has no effect on --list: leave it out"),
        (["--verify", "--reassignment-json-file", "f", "--throttle", "5"], "--throttle has no effect on --verify"),
        (
            ["--execute", "--reassignment-json-file", "f", "--preserve-throttles"],
            "--preserve-throttles has no effect on --execute",
        ),
        (
            ["--cancel", "--reassignment-json-file", "f", "--broker-list", "1"],
            "--broker-list has no effect on --cancel",
        ),
    ],
)
def test_reassignment_is_refused_when_an_option_is_missing_or_has_no_effect(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["reassign-partitions", "--bootstrap-server", "localhost:1", *words]) == 1
    assert message in capsys.readouterr().err


def test_topics_and_brokers_are_refused_when_one_stands_twice(tmp_path: Path) -> None:
    assert read_brokers("3,1") == [3, 1]
    with pytest.raises(AdminError, match=r"duplicate entries: \[1\]"):
        read_brokers("1,2,1")
    with pytest.raises(AdminError, match=r"duplicate entries: \[t\]"):
        read_topics(written(tmp_path, {"version": 1, "topics": [{"topic": "t"}, {"topic": "t"}]}))


def test_throttles_name_sources_and_new_replicas_of_each_partition() -> None:
    throttles = throttles_of({}, {("t", 0): [2, 3], ("t", 1): [1, 2]}, {("t", 0): [1, 2], ("t", 1): [1, 2]})
    assert throttles.leaders == {"t": "0:1,0:2,1:1,1:2"}
    assert throttles.followers == {"t": "0:3"}
    assert throttles.brokers == [1, 2, 3]


def test_partition_that_moves_already_keeps_its_sources() -> None:
    under_way = {("t", 0): Move(frozenset({1}), frozenset({2})), ("u", 0): Move(frozenset({5}), frozenset({6}))}
    throttles = throttles_of(under_way, {("t", 0): [3]}, {("t", 0): [1, 2]})
    assert throttles.leaders == {"t": "0:1", "u": "0:5"}
    assert throttles.followers == {"t": "0:3", "u": "0:6"}
    assert throttles.brokers == [1, 3, 5, 6]
