"""Log directories that accept no new replicas (cordoned.log.dirs, KIP-1066)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from asking import ask
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import IncrementalAlterConfigsRequest
from kafkacore.server.metrics import broker_metrics
from kafkacore.storage.format import FormatOptions, format_directories
from kafkacore.tools import dev
from processes import wait_until
from two_directories import Directories

pytestmark = pytest.mark.timeout(60)


def cordoned(node: Directories) -> list[str] | None:
    """Returns this broker's cordoned directories in the committed metadata."""
    names: dict[Any, str] = {id_: Path(path).name for id_, path in node.broker._logs._paths.items()}
    found = node.broker.context.image.brokers[node.broker.node_id].cordoned_directories
    return None if found is None else sorted(names[each] for each in found)


def shown(node: Directories) -> dict[str, bool]:
    return {name: each.is_cordoned for name, each in node.describe().items()}


def test_cordoned_directory_keeps_its_partitions_and_takes_no_new_ones(tmp_path: Path) -> None:
    with Directories(tmp_path) as node:
        node.create("old", 2)
        node.await_assigned("old", lambda assigned: sorted(assigned) == ["a", "b"])
        lies_in = {node.directory_of("old", index): index for index in range(2)}
        assert node.produce("old", lies_in["b"], b"kept") == 0
    node = Directories(tmp_path, f"cordoned.log.dirs={tmp_path}/b")
    with node:
        wait_until(lambda: cordoned(node) == ["b"])
        assert shown(node) == {"a": False, "b": True}
        assert node.read("old", lies_in["b"], 1) == [b"kept"]
        assert node.produce("old", lies_in["b"], b"more") == 0
        node.create("new", 3)
        assert {node.directory_of("new", index) for index in range(3)} == {"a"}
        # No replica can move to the cordoned directory, but the replicas in it can move away.
        assert node.alter("old", lies_in["a"], str(tmp_path / "b")) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert node.alter("later", 0, str(tmp_path / "b")) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert node.alter("old", lies_in["b"], str(tmp_path / "a")) == ErrorCode.NONE
        wait_until(lambda: node.directory_of("old", lies_in["b"]) == "a")
    node = Directories(tmp_path)
    with node:
        assert (cordoned(node), shown(node)) == (None, {"a": False, "b": False})
        node.create("last", 3)
        assert {node.directory_of("last", index) for index in range(3)} == {"b"}


def alter(node: Directories, operation: int, value: str | None) -> int:
    """Changes this broker's cordoned.log.dirs with IncrementalAlterConfigs. Operation 0 sets the value, 1 deletes it.
    Returns the error code."""
    made = IncrementalAlterConfigsRequest
    config = made.AlterableConfig(name="cordoned.log.dirs", config_operation=operation, value=value)
    resource = made.AlterConfigsResource(resource_type=4, resource_name=str(node.broker.node_id), configs=[config])
    [answer] = ask(node.address, made(resources=[resource]), 1).responses
    return int(answer.error_code)


def metrics(node: Directories) -> dict[str, float]:
    """Returns each directory's metric, by the last part of the directory's path. The key `all` has the total."""
    found = [each for each in broker_metrics(node.broker) if "Cordoned" in each.name]
    return {Path(dict(each.tags).get("logDirectory", "all")).name: float(each.value) for each in found}


def test_directories_are_cordoned_and_released_at_run_time(tmp_path: Path) -> None:
    with Directories(tmp_path) as node:
        assert metrics(node) == {"a": 0, "b": 0, "all": 0}
        assert alter(node, 0, f"{tmp_path}/elsewhere") == ErrorCode.INVALID_REQUEST
        assert alter(node, 0, f"{tmp_path}/a") == ErrorCode.NONE
        wait_until(lambda: cordoned(node) == ["a"])
        assert (shown(node), metrics(node)) == ({"a": True, "b": False}, {"a": 1, "b": 0, "all": 1})
        node.create("t", 3)
        assert {node.directory_of("t", index) for index in range(3)} == {"b"}
        assert alter(node, 1, None) == ErrorCode.NONE
        wait_until(lambda: cordoned(node) == [])
        node.create("u", 3)
        assert {node.directory_of("u", index) for index in range(3)} == {"a"}


def test_broker_gets_no_replicas_when_all_its_directories_are_cordoned(tmp_path: Path) -> None:
    with Directories(tmp_path, "cordoned.log.dirs=*") as node:
        wait_until(lambda: cordoned(node) == ["a", "b"])
        [(_, error, message)] = node.node.create_topics([("t", 1)])
        assert error == ErrorCode.INVALID_REPLICATION_FACTOR
        assert "cordoned" in str(message)


def test_broker_warns_when_the_metadata_version_is_too_old_for_cordoning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = [f"log.dirs={tmp_path}/a,{tmp_path}/b", f"metadata.log.dir={tmp_path}/m"]
    options = FormatOptions(cluster_id="fZ2ZSL8ORhWgOpU_VYWeyw", release_version="4.2", standalone=True)
    format_directories(dev.configuration(str(tmp_path / "m"), 0, given), options, 0, say=lambda line: None)
    with caplog.at_level(logging.WARNING), Directories(tmp_path, f"cordoned.log.dirs={tmp_path}/a") as node:
        node.create("t", 2)
        assert {node.directory_of("t", index) for index in range(2)} == {"b"}
        assert (cordoned(node), shown(node)) == (None, {"a": False, "b": False})
    assert "cordoned.log.dirs: it cannot be reported to the controller, because metadata.version is 4.2" in caplog.text
