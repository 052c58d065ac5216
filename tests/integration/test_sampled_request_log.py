"""A node logs a sample of its requests from every listener, and native code still serves the hot requests without
Python."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.config.errors import ConfigError
from kafkacore.network.client import NodeClient
from kafkacore.observability.sampled_requests import RequestLogError
from kafkacore.protocol import messages as m
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.server.node import Node
from kafkacore.tools.dev import configuration, prepare
from processes import wait_until

BROKER = 4
CLIENT = "sampled"


@contextmanager
def started(path: Path, *overrides: str) -> Iterator[Node]:
    config = configuration(str(path / "data"), 0, list(overrides))
    prepare(config)
    with Node(config) as node:
        node.create_topics([("t", 1)])
        yield node


def ask(node: Node, *requests: Any, address: str | None = None) -> list[Any]:
    """Sends requests one after another on one connection, to the broker or to another address of the node."""
    host, _, port = str(address or node.bootstrap).rpartition(":")

    async def dialogue() -> list[Any]:
        client = NodeClient(host, int(port), CLIENT)
        try:
            return [await client.request(each, 12 if isinstance(each, HOT) else None) for each in requests]
        finally:
            await client.close()

    return asyncio.run(dialogue())


HOT = (m.ProduceRequest, m.FetchRequest)


def produce() -> Any:
    builder = RecordBatchBuilder()
    builder.append(1, None, b"v")
    part = m.ProduceRequest.PartitionProduceData(index=0, records=builder.build())
    data = m.ProduceRequest.TopicProduceData(name="t", partition_data=[part])
    return m.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])


def fetch() -> Any:
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = m.FetchRequest.FetchTopic(topic="t", partitions=[part])
    return m.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic])


def alter(node: Node, every: int, name: str = "1") -> tuple[int, str | None]:
    config = m.IncrementalAlterConfigsRequest.AlterableConfig(
        name="sampled.request.log.every", config_operation=0, value=str(every)
    )
    made = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER, resource_name=name, configs=[config]
    )
    (answer,) = ask(node, m.IncrementalAlterConfigsRequest(resources=[made]))[0].responses
    return answer.error_code, answer.error_message


def entries(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            matched = re.match(r"\[.*?\] DEBUG Completed request:(\{.*\}) \(kafka.request.logger\)$", line)
            assert matched is not None, line
            found.append(json.loads(matched[1]))
    return found


def of_client(path: Path) -> list[dict[str, Any]]:
    """Returns the logged requests that `ask` has sent to the broker."""
    found = (each for each in entries(path) if each["plane"] == "data")
    return [each for each in found if each["requestHeader"]["clientId"] == CLIENT]


def names(path: Path) -> list[str]:
    return [each["requestHeader"]["requestApiKeyName"] for each in of_client(path)]


def test_hot_and_other_requests_are_sampled_and_the_hot_ones_stay_hot(tmp_path: Path) -> None:
    log = tmp_path / "kafka-request.log"
    with started(tmp_path, f"sampled.request.log.file={log}", "sampled.request.log.every=1") as node:
        ask(node, produce())  # this opens the log of the partition
        punted: list[int] = []

        def noting(handlers: Callable[..., Any]) -> Callable[..., Any]:
            def answer(context: Any, body: memoryview) -> Any:
                punted.append(context.api_key)
                return handlers(context, body)

            return answer

        node.broker.plane.loop.call(node.broker.plane.intercept, noting)
        ask(node, m.DescribeClusterRequest(endpoint_type=2), address=node.controller)
        (produced, fetched, _) = ask(node, produce(), fetch(), m.DescribeClusterRequest())
        assert produced.responses[0].partition_responses[0].error_code == 0
        assert fetched.responses[0].partitions[0].records is not None
        wait_until(lambda: names(log)[-3:] == ["PRODUCE", "FETCH", "DESCRIBE_CLUSTER"])
        assert ApiKey.DESCRIBE_CLUSTER in punted
        assert not {ApiKey.PRODUCE, ApiKey.FETCH} & {*punted}
        made = of_client(log)[-3:]
        assert {(each["plane"], each["listener"], each["sampledOf"], each["dropped"]) for each in made} == {
            ("data", "PLAINTEXT", 1, 0)
        }
        assert all(each["totalTimeMs"] > 0 for each in made)
    # The listeners have stopped, so the log is complete.
    planes = {each["plane"]: each["listener"] for each in entries(log)}
    assert planes == {"data": "PLAINTEXT", "controller": "CONTROLLER"}


def test_rate_changes_at_run_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with started(tmp_path, f"sampled.request.log.file={log}") as node:
        ask(node, produce(), fetch())
        assert alter(node, 1) == (0, None)
        wait_until(lambda: ask(node, fetch()) and "FETCH" in names(log))
        assert "PRODUCE" not in names(log)
        assert alter(node, 0) == (0, None)
        plane = node.broker.plane
        wait_until(lambda: plane.limits.sampled_request_log_every == 0)
        ask(node, produce())
    assert "PRODUCE" not in names(log)


@pytest.mark.parametrize("name", ["1", ""])
def test_sampling_is_refused_at_run_time_when_no_file_is_set(tmp_path: Path, name: str) -> None:
    with started(tmp_path) as node:
        error, message = alter(node, 100, name)
        assert error == ErrorCode.INVALID_REQUEST
        assert "set sampled.request.log.file and restart" in str(message)


def test_sampling_is_refused_at_the_start_when_no_file_is_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sampled.request.log.every=5: must be 0 unless sampled.request.log.file"):
        configuration(str(tmp_path), 0, ["sampled.request.log.every=5"])


def test_node_does_not_start_when_its_request_log_cannot_be_opened(tmp_path: Path) -> None:
    config = configuration(str(tmp_path / "data"), 0, [f"sampled.request.log.file={tmp_path / 'no' / 'log'}"])
    prepare(config)
    with pytest.raises(RequestLogError, match=r"sampled.request.log.file=.*No such file or directory"):
        Node(config).start()
