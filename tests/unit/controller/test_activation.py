"""A controller becomes active with an empty log, with an unfinished transaction in its log, and with unknown feature
levels."""

from __future__ import annotations

from random import Random

import pytest

from controllers import SyncedMemoryLog
from kafkacore._fast.record.batch import Batches
from kafkacore.config import BrokerConfig
from kafkacore.controller.quorum.activation import activation_records
from kafkacore.controller.quorum.decisions import Settings
from kafkacore.metadata.image import EMPTY_IMAGE
from kafkacore.metadata.records import MetadataError, RecordWriter, decode_batch
from kafkacore.protocol.features import LATEST_METADATA_VERSION
from kafkacore.protocol.messages import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    TopicRecord,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft import control

LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=30)
HALF = TopicRecord(name="half", topic_id=Uuid(b"h" * 16))
WHOLE = TopicRecord(name="whole", topic_id=Uuid(b"w" * 16))


def log_of(*batches):
    """Returns the log of a controller that led in epoch 1. It has one batch for each list of records."""
    log, writer = SyncedMemoryLog(), RecordWriter(LATEST_METADATA_VERSION)
    for records in batches:
        log.append(control.data_batch([writer.encode(each) for each in records], log.end_offset, 1, 0))
    return log


def names_from(log, offset):
    batches = [batch for batch in Batches(log.read(offset, 1 << 20)) if not batch.is_control]
    return [record.NAME for batch in batches for record in decode_batch(batch)]


def test_half_written_bootstrap_records_are_aborted_and_written_again(run) -> None:
    """The feature levels in the aborted records do not count. The log can end between two batches of the transaction
    (KIP-868)."""
    log = log_of([BeginTransactionRecord(), LEVEL], [HALF])
    end = log.end_offset

    async def story(harness):
        await harness.until(lambda: harness.applied.publisher.image.features)
        for image in (harness.controller.image, harness.applied.publisher.image, harness.adopted.image):
            assert image.topic("half") is None and image.transaction is None
            assert image.features["metadata.version"] == 30
        written = names_from(log, end)
        assert written[:3] == ["AbortTransactionRecord", "BeginTransactionRecord", "FeatureLevelRecord"]
        assert written[-1] == "EndTransactionRecord"

    run(story, log=log)


def test_open_transaction_of_the_last_controller_is_aborted(run) -> None:
    log = log_of(
        [BeginTransactionRecord(), LEVEL, WHOLE, EndTransactionRecord()], [BeginTransactionRecord(name="x")], [HALF]
    )
    end = log.end_offset

    async def story(harness):
        await harness.until(lambda: harness.applied.publisher.image.topic("whole"))
        await harness.until(lambda: harness.controller.image.transaction is None)
        assert names_from(log, end) == ["AbortTransactionRecord"]
        for image in (harness.controller.image, harness.applied.publisher.image):
            assert image.topic("half") is None and image.topic("whole") is not None
        # The records after these are outside the transaction.
        await harness.brokers(1)
        assert harness.controller.image.is_active(1)

    run(story, log=log)


def test_controller_does_not_become_active_at_an_unknown_level() -> None:
    image = EMPTY_IMAGE._replace(features={"metadata.version": 31})
    controller = {"process.roles": "controller", "node.id": "1", "listeners": "CONTROLLER://:9093"}
    quorum = {"controller.listener.names": "CONTROLLER", "controller.quorum.voters": "1@localhost:9093"}
    settings = Settings("c", BrokerConfig(controller | quorum | {"log.dirs": "/nowhere"}), Random(1))
    with pytest.raises(MetadataError, match=r"metadata\.version 31 is finalised"):
        activation_records(image, settings, ())
    levels = [FeatureLevelRecord(name="metadata.version", feature_level=20)]
    with pytest.raises(MetadataError, match=r"metadata\.version 20 is finalised"):
        activation_records(EMPTY_IMAGE, settings, levels)
