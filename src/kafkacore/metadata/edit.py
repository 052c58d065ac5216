"""Replays records. All changes of metadata are made here: on the active controller, on a standby controller, on a
broker, and at a restart.

An Edit starts from an image and replays records. `freeze` returns the next image, and `delta` is the difference between
the two images. An Edit copies only what it changes, so the cost of a batch does not depend on the size of the image.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any, Final

from kafkacore.metadata import image as images
from kafkacore.metadata.client_quotas import entity_of, kept_key
from kafkacore.metadata.delta import MetadataDelta
from kafkacore.metadata.image import FreeRow, MetadataImage, Topic, Transaction
from kafkacore.metadata.partition_records import ChangeRun, ColumnRun, PartitionRecords, PartitionRun, Record, Records
from kafkacore.metadata.partitions import CHUNK_ROWS, PartitionChunk, consecutive, successive
from kafkacore.metadata.records import MetadataError
from kafkacore.metadata.registrations import BrokerRegistration, broker_of, controller_of
from kafkacore.metadata.sharded import ShardedEdit
from kafkacore.protocol.features import KRAFT_VERSION
from kafkacore.protocol.messages import Message, RemoveTopicRecord
from kafkacore.protocol.uuid import ZERO, Uuid
from kafkacore.runtime.slices import Work, finish_now

Replayer = Callable[["Edit", Any, int], None]
UUID_BYTES: Final = 16


class Edit:
    """Replays records on an image. Raises MetadataError for a record that does not fit the records before it.

    `decided_here` says whether this process has made the records, and has based them on `base` or on an earlier image.
    In this case the row numbers in the records are valid in `base`.
    """

    def __init__(self, base: MetadataImage, *, decided_here: bool = False) -> None:
        self._decided_here = decided_here
        self.aborted = False  # if True, a transaction was aborted and `delta` is not complete
        self._load(base)

    def _load(self, base: MetadataImage) -> None:
        self.base = base
        self.delta = MetadataDelta()
        # A change copies the map of brokers. So two images with the same `brokers` object have equal brokers.
        self.features = base.features
        self.brokers = base.brokers
        self.controllers = base.controllers
        self.next_producer_id = base.next_producer_id
        self.transaction = base.transaction
        # The edit of `kept`, the records that are only stored. None until one of them changes, which is rare.
        self._kept: ShardedEdit[tuple[Any, ...], Any] | None = None
        self._topic_chunks = list(base.topic_chunks)
        self._topic_ids = list(base.topic_ids)
        self._own_topics: set[int] = set()
        self._own_rows: set[Any] = set()  # ids of topics whose `partition_rows` this edit has copied
        self._topics_by_name = base.topics_by_name.edit()
        self._topics_by_id = base.topics_by_id.edit()
        self._lookalikes = base.lookalikes.edit()
        self._topic_rows = base.topic_rows
        self._free_topics = base.free_topics
        self._partition_chunks = list(base.partition_chunks)
        self._own_partitions: set[int] = set()
        self._partition_rows = base.partition_rows
        self._partition_count = base.partition_count
        self._free_partitions = base.free_partitions
        self._configs = base.configs.edit()
        self._own_configs: dict[images.ConfigKey, dict[str, str | None]] = {}  # changed settings, copied by this edit
        # The last partition rows can be assigned but not filled yet. The next fields say how to fill these rows: the
        # columns with the content, the first row to take from the columns, and the topic row for each new row.
        self._unfilled: PartitionRecords | None = None
        self._unfilled_first = 0
        self._unfilled_topics = array("i")

    # --- in and out ---

    def replay(self, record: Record, offset: int = -1) -> None:
        """Replays one record at its offset, or a run (an object that represents several records), whose first record
        has that offset.
        """
        replayer = _REPLAYERS.get(record.NAME)
        if replayer is None:
            raise MetadataError(f"a {record.NAME} is not metadata")
        replayer(self, record, offset)

    def replay_batch(self, records: Records, base_offset: int) -> None:
        finish_now(self.replaying(records, base_offset))

    def replaying(self, records: Records, base_offset: int) -> Work[None]:
        """Replays a batch as `replay_batch` does, but lets the event loop do other work between two records."""
        offset = base_offset
        for record in records:
            self.replay(record, offset)
            offset += 1 if isinstance(record, Message) else record.count
            yield

    def freeze(self, offset: int, epoch: int, timestamp_ms: int) -> MetadataImage:
        """Returns the image after all replayed records. Do not use the edit afterwards."""
        self._fill_rows()
        base = self.base
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            features=self.features,
            brokers=self.brokers,
            controllers=self.controllers,
            topic_chunks=self._topic_chunks,
            topic_ids=self._topic_ids,
            topics_by_name=self._topics_by_name.freeze(),
            topics_by_id=self._topics_by_id.freeze(),
            lookalikes=self._lookalikes.freeze(),
            topic_rows=self._topic_rows,
            free_topics=self._free_topics,
            partition_chunks=self._partition_chunks,
            partition_rows=self._partition_rows,
            partition_count=self._partition_count,
            free_partitions=self._free_partitions,
            configs=self._configs.freeze(),
            next_producer_id=self.next_producer_id,
            kept=base.kept if self._kept is None else self._kept.freeze(),
            transaction=self.transaction,
        )

    # --- topics and partitions ---

    def _topic_slot(self, row: int) -> tuple[list[Topic | None], int]:
        number, index = divmod(row, images.TOPIC_CHUNK_ROWS)
        if number not in self._own_topics:
            self._own_topics.add(number)
            if number == len(self._topic_chunks):
                self._topic_chunks.append([])
                self._topic_ids.append(bytearray(UUID_BYTES * images.TOPIC_CHUNK_ROWS))
            else:
                self._topic_chunks[number] = self._topic_chunks[number].copy()
                self._topic_ids[number] = self._topic_ids[number].copy()
        return self._topic_chunks[number], index

    def _put_topic(self, row: int, topic: Topic | None) -> None:
        chunk, index = self._topic_slot(row)
        topic_id = ZERO if topic is None else topic.topic_id
        self._topic_ids[row // images.TOPIC_CHUNK_ROWS][UUID_BYTES * index : UUID_BYTES * (index + 1)] = topic_id
        if index == len(chunk):
            chunk.append(topic)
        else:
            chunk[index] = topic

    def _topic(self, topic_id: Any, record: Record) -> tuple[int, Topic]:
        row = self._topics_by_id.get(topic_id)
        if row is None:
            raise MetadataError(f"{record!r} is about a topic that does not exist")
        topic = self._topic_chunks[row // images.TOPIC_CHUNK_ROWS][row % images.TOPIC_CHUNK_ROWS]
        assert topic is not None
        return row, topic

    def _partition_chunk(self, number: int) -> PartitionChunk:
        self._fill_rows()
        if number not in self._own_partitions:
            self._own_partitions.add(number)
            if number == len(self._partition_chunks):
                self._partition_chunks.append(PartitionChunk())
            else:
                self._partition_chunks[number] = self._partition_chunks[number].copy()
        return self._partition_chunks[number]

    def add_topic(self, record: Any, offset: int) -> None:
        if record.name in self._topics_by_name or record.topic_id in self._topics_by_id:
            raise MetadataError(f"{record!r} is about a topic that exists already")
        if self._free_topics is not None:
            row, self._free_topics = self._free_topics
        else:
            row = self._topic_rows
            self._topic_rows += 1
        self._put_topic(row, Topic(record.name, record.topic_id, array("i")))
        self._own_rows.add(record.topic_id)
        self._topics_by_name[record.name] = row
        self._topics_by_id[record.topic_id] = row
        if images.has_collision_characters(record.name):
            key = images.unify_collision_characters(record.name)
            self._lookalikes[key] = (*(self._lookalikes.get(key) or ()), record.name)
        self.delta.topics_created[record.topic_id] = row

    def remove_topic(self, record: Any, offset: int) -> None:
        row, topic = self._topic(record.topic_id, record)
        for partition_row in topic.partition_rows:
            if partition_row >= 0:
                self._partition_chunk(partition_row // CHUNK_ROWS).free(partition_row % CHUNK_ROWS)
                self._free_partitions = FreeRow(partition_row, self._free_partitions)
                self._partition_count -= 1
                self.delta.partition_rows.discard(partition_row)
                self.delta.freed_rows.add(partition_row)
        self._put_topic(row, None)
        self._free_topics = FreeRow(row, self._free_topics)
        self._topics_by_name.pop(topic.name)
        self._topics_by_id.pop(topic.topic_id)
        self._forget_lookalike(topic.name)
        self._own_configs.pop((images.TOPIC, topic.name), None)
        if self._configs.pop((images.TOPIC, topic.name)) is not None:
            self.delta.configs.add((images.TOPIC, topic.name))
        self.delta.topics_created.pop(topic.topic_id, None)
        self.delta.topics_deleted[topic.topic_id] = topic.name

    # The following methods are for a broker in ZooKeeper mode, which gets no records. There, the controller deletes
    # partitions one by one.

    def has_topic(self, topic_id: Uuid) -> bool:
        return topic_id in self._topics_by_id

    def topic_id_of(self, name: str) -> Uuid | None:
        row = self._topics_by_name.get(name)
        topic = (
            None if row is None else self._topic_chunks[row // images.TOPIC_CHUNK_ROWS][row % images.TOPIC_CHUNK_ROWS]
        )
        return None if topic is None else topic.topic_id

    def drop_partitions(self, topic_id: Uuid, partitions: Iterable[int]) -> None:
        """Removes partitions of a topic. If no partition is left, also removes the topic. Ignores partition numbers
        that do not exist. The delta treats the remaining partitions of the topic as changed.
        """
        topic_row, topic = self._topic(topic_id, RemoveTopicRecord(topic_id=topic_id))
        self._fill_rows()
        rows = self._own_rows_of(topic_row, topic)
        for partition in partitions:
            row = rows[partition] if 0 <= partition < len(rows) else -1
            if row < 0:
                continue
            self._partition_chunk(row // CHUNK_ROWS).free(row % CHUNK_ROWS)
            self._free_partitions = FreeRow(row, self._free_partitions)
            self._partition_count -= 1
            self.delta.partition_rows.discard(row)
            self.delta.freed_rows.add(row)
            rows[partition] = -1
        while rows and rows[-1] < 0:
            rows.pop()
        if rows:
            self.delta.partition_rows.update(row for row in rows if row >= 0)
        else:
            self.remove_topic(RemoveTopicRecord(topic_id=topic_id), -1)

    def _own_rows_of(self, topic_row: int, topic: Topic) -> array[int]:
        """Returns the topic's list of partition rows. The first call copies the list, so this edit may change it."""
        rows = topic.partition_rows
        if topic.topic_id not in self._own_rows:
            self._own_rows.add(topic.topic_id)
            rows = rows[:]
            self._put_topic(topic_row, topic._replace(partition_rows=rows))
        return rows

    def _forget_lookalike(self, name: str) -> None:
        if images.has_collision_characters(name):
            key = images.unify_collision_characters(name)
            left = tuple([each for each in self._lookalikes.get(key) or () if each != name])
            if left:
                self._lookalikes[key] = left
            else:
                self._lookalikes.pop(key)

    def add_partitions(self, record: Any, offset: int) -> None:
        """Replays a PartitionRecord, or a run (an object that represents several of them)."""
        run = record if type(record) is PartitionRun else PartitionRun.of(record)
        topic_row, topic = self._topic(run.topic_id, run)
        rows = self._own_rows_of(topic_row, topic)
        first, end, partitions = run.first, run.first + run.count, run.columns.partition
        known = len(rows)
        if self._free_partitions is None and partitions[first:end] == consecutive(known, run.count):
            self._append_rows(rows, topic_row, run)
            return
        told = partitions[first:end]
        if told and min(told) >= 0 and max(told) < known:
            places = array("i", [rows[partition] for partition in told])
            if min(places) >= 0:
                self._overwrite(places, topic_row, run.columns, first)
                return
        for index in range(first, end):
            self._place(rows, topic_row, run.columns, index)

    def _append_rows(self, rows: array[int], topic_row: int, run: PartitionRun) -> None:
        """Assigns rows to new partitions without filling them. `_fill_rows` later fills consecutive rows together."""
        if run.columns is not self._unfilled or run.first != self._unfilled_first + len(self._unfilled_topics):
            self._fill_rows()
            self._unfilled, self._unfilled_first = run.columns, run.first
        self._unfilled_topics += array("i", [topic_row]) * run.count
        rows.extend(range(self._partition_rows, self._partition_rows + run.count))
        self._partition_rows += run.count
        self._partition_count += run.count

    def _fill_rows(self) -> None:
        """Writes the content of the appended rows into the chunks. Called before anybody reads these rows."""
        columns, topics, done = self._unfilled, self._unfilled_topics, 0
        if columns is None:
            return
        self._unfilled, self._unfilled_topics = None, array("i")
        first = self._partition_rows - len(topics)
        self.delta.partition_rows.update(range(first, self._partition_rows))
        while done < len(topics):
            at = first + done
            count = min(len(topics) - done, CHUNK_ROWS - at % CHUNK_ROWS)
            chunk = self._partition_chunk(at // CHUNK_ROWS)
            chunk.extend(topics[done : done + count], columns, self._unfilled_first + done)
            done += count

    def _place(self, rows: array[int], topic_row: int, columns: PartitionRecords, index: int) -> None:
        """Stores a partition that is not the next one of its topic. If the partition has a row, it keeps that row;
        otherwise it gets an unused row.
        """
        partition = columns.partition[index]
        if partition < 0:
            raise MetadataError(f"a PartitionRecord has a negative partition, {partition}")
        if partition < len(rows) and rows[partition] >= 0:
            self._overwrite(rows[partition : partition + 1], topic_row, columns, index)
            return
        if partition > len(rows) + CHUNK_ROWS * CHUNK_ROWS:
            raise MetadataError(f"partition {partition} skips more partition numbers than a topic can have")
        rows.extend([-1] * (partition + 1 - len(rows)))
        rows[partition] = row = self._new_row(topic_row, columns, index)
        self._partition_count += 1
        self.delta.partition_rows.add(row)

    def _new_row(self, topic_row: int, columns: PartitionRecords, index: int) -> int:
        if self._free_partitions is not None:
            row, self._free_partitions = self._free_partitions
            self._partition_chunk(row // CHUNK_ROWS).put(row % CHUNK_ROWS, columns.row(index, topic_row))
            return row
        chunk = self._partition_chunk(self._partition_rows // CHUNK_ROWS)
        chunk.extend(array("i", [topic_row]), columns, index)
        self._partition_rows += 1
        return self._partition_rows - 1

    def _overwrite(self, places: array[int], topic_row: int, columns: PartitionRecords, first: int) -> None:
        """Overwrites these rows, in order, with the rows of `columns` from row `first` on."""
        for row, count in successive(places):
            chunk = self._partition_chunk(row // CHUNK_ROWS)
            chunk.replace(row % CHUNK_ROWS, count, topic_row, columns, first)
            first += count
        self.delta.partition_rows.update(places)

    def change_partitions(self, record: Any, offset: int) -> None:
        """Replays a PartitionChangeRecord, or a run (an object that represents several of them)."""
        if type(record) is ColumnRun:
            self._change_columns(record)
            return
        run = record if type(record) is ChangeRun else ChangeRun(record, array("i", (record.partition_id,)))
        _, topic = self._topic(run.record.topic_id, record)
        rows = topic.partition_rows
        if not 0 <= min(run.partitions) <= max(run.partitions) < len(rows):
            raise MetadataError(f"{record!r} is about a partition that does not exist")
        changed = array("i", [rows[partition] for partition in run.partitions])
        if min(changed) < 0:
            raise MetadataError(f"{record!r} is about a partition that does not exist")
        try:
            for row, count in successive(changed):
                self._partition_chunk(row // CHUNK_ROWS).change(row % CHUNK_ROWS, count, run.record)
        except OverflowError:
            raise MetadataError(f"{record!r} is about a partition that has no epoch after its last") from None
        self.delta.partition_rows.update(changed)

    def _change_columns(self, run: ColumnRun) -> None:
        from kafkacore.metadata import change_columns as vectors  # noqa: PLC0415 - loads numpy: some 100 ms

        columns = run.columns
        if self._decided_here and columns.rows is not None:
            rows = columns.rows[run.first : run.first + run.count]
        else:
            rows = vectors.located(run, self._row_of)
        rows, order = vectors.ascending(rows)
        if order is not None and (rows[1:] == rows[:-1]).any():
            # A batch that another controller wrote can change a partition twice, so its records are replayed one by
            # one, in order.
            for at in range(run.first, run.first + run.count):
                self.change_partitions(columns.record(at), -1)
            return
        try:
            for number, indexes, span in vectors.spans(rows):
                told = (
                    slice(run.first + span.start, run.first + span.stop) if order is None else order[span] + run.first
                )
                vectors.change_rows(self._partition_chunk(number), indexes, columns, told)
        except OverflowError:
            raise MetadataError(f"{run!r}: a partition has no epoch after its last") from None
        self.delta.change_rows(rows)

    def _row_of(self, topic_id: Uuid, partition: int) -> int:
        row = self._topics_by_id.get(topic_id)
        if row is not None:
            topic = self._topic_chunks[row // images.TOPIC_CHUNK_ROWS][row % images.TOPIC_CHUNK_ROWS]
            assert topic is not None
            rows = topic.partition_rows
            if 0 <= partition < len(rows) and rows[partition] >= 0:
                return rows[partition]
        raise MetadataError(
            f"a PartitionChangeRecord is about partition {partition} of {topic_id!r}: it does not exist"
        )

    def clear_elr(self, record: Any, offset: int) -> None:
        """Clears the ELR of one topic, or of all topics if the name is empty (KIP-966)."""
        self._fill_rows()
        only = None
        if record.topic_name:
            only = self._topics_by_name.get(record.topic_name)
            if only is None:
                raise MetadataError(f"{record!r} is about a topic that does not exist")
        for number in range(len(self._partition_chunks)):
            for index, rare in list(self._partition_chunks[number].rare.items()):
                if (rare.elr or rare.last_known_elr) and (
                    only is None or self._partition_chunks[number].topic[index] == only
                ):
                    chunk = self._partition_chunk(number)
                    row = chunk.get(index)
                    chunk.put(index, row._replace(elr=(), last_known_elr=(), partition_epoch=row.partition_epoch + 1))
                    self.delta.partition_rows.add(number * CHUNK_ROWS + index)

    # --- nodes ---

    def register_broker(self, record: Any, offset: int) -> None:
        self._put_broker(broker_of(record, offset))

    def unregister_broker(self, record: Any, offset: int) -> None:
        self._broker(record.broker_id, record.broker_epoch, record)
        self.brokers = {key: broker for key, broker in self.brokers.items() if key != record.broker_id}
        self.delta.brokers.add(record.broker_id)

    def change_broker(self, record: Any, offset: int) -> None:
        self._put_broker(self._broker(record.broker_id, record.broker_epoch, record).changed(record))

    def fence_broker(self, record: Any, offset: int) -> None:
        self._put_broker(self._broker(record.id, record.epoch, record).with_fenced(True))

    def unfence_broker(self, record: Any, offset: int) -> None:
        self._put_broker(self._broker(record.id, record.epoch, record).with_fenced(False))

    def _broker(self, broker_id: int, epoch: int, record: Message) -> BrokerRegistration:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise MetadataError(f"{record!r} is about a broker that is not registered at that epoch")
        return broker

    def _put_broker(self, broker: BrokerRegistration) -> None:
        self.brokers = {**self.brokers, broker.broker_id: broker}
        self.delta.brokers.add(broker.broker_id)

    def register_controller(self, record: Any, offset: int) -> None:
        self.controllers = {**self.controllers, record.controller_id: controller_of(record)}
        self.delta.controllers.add(record.controller_id)

    # --- everything else ---

    def set_config(self, record: Any, offset: int) -> None:
        key = (record.resource_type, record.resource_name)
        values = self._own_configs.get(key)
        if values is None:
            values = self._own_configs[key] = dict(self._configs.get(key) or {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self._configs[key] = values
        else:
            self._configs.pop(key)
            del self._own_configs[key]
        self.delta.configs.add(key)

    def set_feature(self, record: Any, offset: int) -> None:
        """Stores any feature level without a check. A later record may replace an unsupported level by a supported one,
        so the active controller checks only the final level.
        """
        if record.name == KRAFT_VERSION:
            # kraft.version is in a control record. Apache Kafka 3.9 also wrote a FeatureLevelRecord, which must be
            # ignored so that snapshots do not repeat it (KAFKA-18979).
            return
        features = {**self.features, record.name: record.feature_level}
        if record.feature_level == 0:
            del features[record.name]
        self.features = features
        self.delta.features.add(record.name)

    def set_producer_ids(self, record: Any, offset: int) -> None:
        held = self.next_producer_id
        if held is not None and record.next_producer_id <= held.next_producer_id:
            raise MetadataError(f"{record!r} would allocate producer ids twice: {held.next_producer_id} is the next")
        self.next_producer_id = record
        self.delta.producer_ids = True

    def keep(self, key: tuple[Any, ...], record: Any) -> None:
        """Stores a record that has no effect here, but must be written to snapshots. If `record` is None, removes the
        stored record.
        """
        if self._kept is None:
            self._kept = self.base.kept.edit()
        if record is None:
            self._kept.pop(key)
        else:
            self._kept[key] = record
        self.delta.kept.add(key)

    # --- transactions (KIP-868) ---

    def begin(self, record: Any, offset: int) -> None:
        if self.transaction is not None:
            raise MetadataError(
                f"a metadata transaction begins at {offset} within the one from {self.transaction.offset}"
            )
        before = self.freeze(offset - 1, self.base.epoch, self.base.timestamp_ms)
        delta = self.delta
        # Now `before` and this edit share their structures, so the next change must copy them again.
        self._load(before)
        self.delta = delta
        self.transaction = Transaction(record.name, offset, before)

    def end(self, record: Any, offset: int) -> None:
        self._require_transaction(offset)
        self.transaction = None

    def abort(self, record: Any, offset: int) -> None:
        transaction = self._require_transaction(offset)
        self._load(transaction.before)
        self.aborted = True

    def _require_transaction(self, offset: int) -> Transaction:
        if self.transaction is None:
            raise MetadataError(f"a metadata transaction ends at {offset}, but none is under way")
        return self.transaction


def next_root(
    base: MetadataImage, records: Records, offsets: tuple[int, int], epoch: int, timestamp_ms: int
) -> tuple[MetadataImage, MetadataDelta | None]:
    """Returns the image after a committed batch, and the delta from `base` to that image. The delta is None if
    everything may have changed. `offsets` are the first and the last offset of the batch.

    Raises MetadataError in the same cases as Edit.
    """
    first, last = offsets
    if all(_REPLAYERS.get(record.NAME) is _nothing for record in records):
        # Most batches in the log of a quiet cluster contain one NoOpRecord. A node that starts replays thousands of
        # such batches.
        return base._replace(offset=last, epoch=epoch, timestamp_ms=timestamp_ms), MetadataDelta()
    edit = Edit(base)
    edit.replay_batch(records, first)
    return edit.freeze(last, epoch, timestamp_ms), None if edit.aborted else edit.delta


def _nothing(edit: Edit, record: Any, offset: int) -> None:
    """Does nothing, because a NoOpRecord only shows that the log is alive (KIP-835)."""


def _kept(*fields: str) -> Replayer:
    def replay(edit: Edit, record: Any, offset: int) -> None:
        edit.keep((record.NAME, *[getattr(record, name) for name in fields]), record)

    return replay


def _dropped(kept: str, *fields: str) -> Replayer:
    def replay(edit: Edit, record: Any, offset: int) -> None:
        edit.keep((kept, *[getattr(record, name) for name in fields]), None)

    return replay


def _quota(edit: Edit, record: Any, offset: int) -> None:
    edit.keep(kept_key(entity_of(record.entity), record.key), None if record.remove else record)


_REPLAYERS: Final[dict[str, Replayer]] = {
    "RegisterBrokerRecord": Edit.register_broker,
    "UnregisterBrokerRecord": Edit.unregister_broker,
    "TopicRecord": Edit.add_topic,
    "PartitionRecord": Edit.add_partitions,
    "ConfigRecord": Edit.set_config,
    "PartitionChangeRecord": Edit.change_partitions,
    "FenceBrokerRecord": Edit.fence_broker,
    "UnfenceBrokerRecord": Edit.unfence_broker,
    "RemoveTopicRecord": Edit.remove_topic,
    "DelegationTokenRecord": _kept("token_id"),
    "UserScramCredentialRecord": _kept("name", "mechanism"),
    "FeatureLevelRecord": Edit.set_feature,
    "ClientQuotaRecord": _quota,
    "ProducerIdsRecord": Edit.set_producer_ids,
    "BrokerRegistrationChangeRecord": Edit.change_broker,
    "AccessControlEntryRecord": _kept("id"),
    "RemoveAccessControlEntryRecord": _dropped("AccessControlEntryRecord", "id"),
    "NoOpRecord": _nothing,
    "ZkMigrationStateRecord": _kept(),
    "RemoveUserScramCredentialRecord": _dropped("UserScramCredentialRecord", "name", "mechanism"),
    "BeginTransactionRecord": Edit.begin,
    "EndTransactionRecord": Edit.end,
    "AbortTransactionRecord": Edit.abort,
    "RemoveDelegationTokenRecord": _dropped("DelegationTokenRecord", "token_id"),
    "RegisterControllerRecord": Edit.register_controller,
    "ClearElrRecord": Edit.clear_elr,
}
