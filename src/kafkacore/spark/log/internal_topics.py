"""The tables `groups`, `transactions` and `metadata`: Kafka's own topics, decoded record by record."""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import orjson
import pyarrow as pa

from kafkacore._fast.record.batch import Batch, Batches, CorruptBatchError, Record
from kafkacore.inspection.decoders import cluster_metadata, control_content, offsets, transaction_log
from kafkacore.protocol.errors import KafkaError
from kafkacore.spark.log.rows import batches_of, micros
from kafkacore.spark.log.scanning import Block, Damage, blocks, shown_path
from kafkacore.spark.log.small_files import aborted_by_producer
from kafkacore.spark.log.splits import Split
from kafkacore.storage import names

_OFFSET_COMMITS = ("0", "1")  # the types of the keys that commit offsets


def decoded_batches(split: Split, table: str, schema: pa.Schema, *, corrupt_rows: bool) -> Iterator[pa.RecordBatch]:
    """Returns the rows of a split of one of Kafka's own topics. With `corrupt_rows`, damage becomes a row with a
    `problem`; otherwise damage raises an error."""
    make = {
        "groups": partial(_group_rows, aborted=AbortedTransactions(split.segment.replica.path)),
        "transactions": _transaction_rows,
        "metadata": _metadata_rows,
    }[table]
    yield from batches_of(_rows(split, make, corrupt_rows=corrupt_rows), schema)


def _rows(split: Split, make: Any, *, corrupt_rows: bool) -> Iterator[Mapping[str, Any]]:
    replica = split.segment.replica
    place = {"broker": replica.log_dir.broker, "partition": replica.partition}
    for block in blocks(split):
        for part in [block] if isinstance(block, Damage) else _decoded(block, make, split):
            if not isinstance(part, Damage):
                yield {**place, **part}
                continue
            if not corrupt_rows:
                raise CorruptBatchError(part.text())
            yield {**place, "file": shown_path(split), "problem": part.text()}


def _decoded(block: Block, make: Any, split: Split) -> Iterator[dict[str, Any] | Damage]:
    """Yields the rows of a block. For a batch that has a correct checksum and malformed records, yields the damage, and
    continues after this batch."""
    batches = Batches(block.data)
    for batch in batches:
        try:
            yield from make(batch, split)
        except (KafkaError, ValueError) as error:  # a bad body, record, or content of a control record
            position = block.position + batches.position - batch.size_bytes
            yield Damage(block.path, position, batch.base_offset, str(error))


def _json(value: Any) -> str | None:
    return None if value is None else value if isinstance(value, str) else orjson.dumps(value).decode()


# --- __consumer_offsets ---


class AbortedTransactions:
    """The aborted transactions of a partition, according to its transaction indexes. Reads the indexes when it first
    needs them."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: dict[int, list[tuple[int, int]]] | None = None

    def contain(self, batch: Batch) -> bool:
        if not batch.is_transactional:
            return False
        if self._found is None:
            self._found = aborted_by_producer(self._path)
        return any(first <= batch.base_offset <= last for first, last in self._found.get(batch.producer_id, ()))


def _group_rows(batch: Batch, _split: Split, *, aborted: AbortedTransactions) -> Iterator[dict[str, Any]]:
    if batch.is_control:
        return
    is_aborted = aborted.contain(batch)
    for record in batch:
        yield {**_group_row(record), "aborted": is_aborted}


def _group_row(record: Record) -> dict[str, Any]:
    row: dict[str, Any] = {"offset": record.offset, "timestamp": micros(record.timestamp)}
    try:
        decoded = offsets(record)
    except KafkaError as error:
        return {**row, "problem": str(error)}
    if isinstance(decoded.key, str):
        return {**row, "problem": decoded.key}
    key, tombstone = decoded.key["data"], record.value is None
    value = None if tombstone else decoded.value["data"]
    is_commit = decoded.key["type"] in _OFFSET_COMMITS
    row |= {
        "type": "offset" if is_commit else "group" if decoded.key["type"] == "2" else f"type {decoded.key['type']}",
        "group": key.get("group", key.get("groupId")),
        "tombstone": tombstone,
        "key": _json(key),
        "value": _json(value),
    }
    if is_commit:
        row |= {"topic": key["topic"], "topicPartition": key["partition"], **_commit(value)}
    return row


def _commit(value: dict[str, Any] | None) -> dict[str, Any]:
    if value is None:
        return {}
    return {
        "committedOffset": value["offset"],
        "committedLeaderEpoch": value.get("leaderEpoch", -1),
        "metadata": value["metadata"],
        "commitTimestamp": micros(value["commitTimestamp"]),
    }


# --- __transaction_state ---


def _transaction_rows(batch: Batch, _split: Split) -> Iterator[dict[str, Any]]:
    if batch.is_control:
        return
    for record in batch:
        row: dict[str, Any] = {"offset": record.offset, "timestamp": micros(record.timestamp)}
        try:
            decoded = transaction_log(record)
        except KafkaError as error:
            yield {**row, "problem": str(error)}
            continue
        if isinstance(decoded.key, str):
            yield {**row, "problem": decoded.key}
            continue
        value = None if record.value is None else decoded.value["data"]
        row |= {"transactionalId": decoded.key["data"]["transactionalId"], "tombstone": value is None}
        if value is not None:
            row |= {
                "producerId": value["producerId"],
                "producerEpoch": value["producerEpoch"],
                "state": _STATES.get(value["transactionStatus"], str(value["transactionStatus"])),
                "timeoutMs": value["transactionTimeoutMs"],
                "value": _json(value),
            }
        yield row


# The states of Apache Kafka's transaction coordinator. The index is the number of the state in the log.
_STATES = {
    0: "Empty", 1: "Ongoing", 2: "PrepareCommit", 3: "PrepareAbort", 4: "CompleteCommit", 5: "CompleteAbort",
    6: "Dead", 7: "PrepareEpochFence",
}  # fmt: skip


# --- __cluster_metadata ---


def _metadata_rows(batch: Batch, split: Split) -> Iterator[dict[str, Any]]:
    snapshot = names.parse_checkpoint_name(os.path.basename(split.segment.path)) is not None
    common = {
        "partition": None,
        "file": shown_path(split),
        "snapshot": snapshot,
        "leaderEpoch": batch.partition_leader_epoch,
        "control": batch.is_control,
    }
    for record in batch:
        row = {**common, "offset": record.offset, "timestamp": micros(record.timestamp)}
        if batch.is_control:
            name, content = control_content(record)
            yield {**row, "type": name, "value": _json(content)}
        else:
            yield {**row, **_metadata_row(record)}


def _metadata_row(record: Record) -> dict[str, Any]:
    shown = cluster_metadata(record).value
    if isinstance(shown, str):
        return {"problem": shown}
    data = shown["data"]
    return {
        "type": shown["type"],
        "version": shown["version"],
        "name": _first(data, ("name", "resourceName")),
        "topicId": data.get("topicId"),
        "partition": data.get("partitionId"),
        "replicas": data.get("replicas"),
        "isr": data.get("isr"),
        "leader": data.get("leader"),
        "brokerId": _first(data, ("brokerId", "id")),
        "brokerEpoch": _first(data, ("brokerEpoch", "epoch")),
        "value": _json(data),
    }


def _first(data: dict[str, Any], fields: tuple[str, ...]) -> Any:
    found = next((data[name] for name in fields if name in data), None)
    return found if not isinstance(found, str) or fields[0] != "brokerId" else None
