"""Decides which logs may lack offsets because the cleaner has removed records from them.

For each log, the cleaner's checkpoint in the log directory contains the offset up to which the cleaner has compacted
the log. The metadata log, if the directory has one, shows whether the topic is compacted. A follower copies a log that
its leader may already have compacted, so a log of a compacted topic may lack any offset.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from kafkacore._fast.base.errors import KafkaError, ProtocolError
from kafkacore._fast.codec.compression import CodecError
from kafkacore.inspection.metadata_log import newest_files, whole_batches
from kafkacore.inspection.report import Report
from kafkacore.metadata.image import BROKER, MetadataImage
from kafkacore.metadata.records import decode_batch
from kafkacore.metadata.snapshot import image_of
from kafkacore.storage import names
from kafkacore.storage.checkpoints import CLEANER_OFFSET, OffsetCheckpoint
from kafkacore.storage.errors import MalformedFileError, reason

EVERYWHERE: Final = (1 << 63) - 1
_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"
_COMPACTED_TOPICS: Final = frozenset({names.OFFSETS_TOPIC, names.TRANSACTIONS_TOPIC})


class _LogDirectory(NamedTuple):
    """The content of the cleaner's checkpoint, and the metadata. The metadata is None if the directory has no metadata
    log."""

    cleaned: dict[tuple[str, int], int]
    image: MetadataImage | None


class CompactedLogs:
    """Decides which offsets a log must have. Reads the files of each log directory once, and reports those that it
    cannot read."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._log_directories: dict[str, _LogDirectory] = {}

    def complete_from(self, directory: str) -> int:
        """Returns the offset from which the log in `directory` must be complete: 0, the offset in the cleaner's
        checkpoint, or EVERYWHERE if any offset may be missing."""
        directory = os.path.abspath(directory)
        parsed = names.parse_partition_directory(os.path.basename(directory))
        if parsed is None or parsed.topic == names.CLUSTER_METADATA_TOPIC:
            return 0
        if parsed.topic in _COMPACTED_TOPICS:
            return EVERYWHERE
        if parsed.kind in (names.Kind.DELETE, names.Kind.STRAY):
            return EVERYWHERE  # the metadata no longer contains the topic
        around = self._around(os.path.dirname(directory))
        compacted = _is_compacted(around.image, parsed.topic)
        cleaned = around.cleaned.get((parsed.topic, parsed.partition))
        if compacted or (compacted is None and cleaned is not None):
            return EVERYWHERE
        return cleaned or 0

    def _around(self, log_directory: str) -> _LogDirectory:
        if log_directory not in self._log_directories:
            self._log_directories[log_directory] = _LogDirectory(
                self._read_cleaned(log_directory), self._read_image(log_directory)
            )
        return self._log_directories[log_directory]

    def _read_cleaned(self, log_directory: str) -> dict[tuple[str, int], int]:
        try:
            return OffsetCheckpoint(log_directory, CLEANER_OFFSET).read()
        except (MalformedFileError, OSError) as error:
            self._report.remark("unread", reason(error), file=os.path.join(log_directory, CLEANER_OFFSET))
            return {}

    def _read_image(self, log_directory: str) -> MetadataImage | None:
        path = names.metadata_directory(log_directory)
        if not os.path.isdir(path):
            return None
        try:
            return read_metadata(path)
        except (KafkaError, ProtocolError, CodecError, OSError) as error:
            told = f"{path}: cannot be read ({error}); only the cleaner's checkpoint shows which logs are compacted"
            self._report.remark("unread", told, file=path)
            return None


def _is_compacted(image: MetadataImage | None, topic: str) -> bool | None:
    """Returns whether the metadata says that the topic is compacted. Returns None if the metadata has no such setting.
    Then the static configuration of the node decides."""
    if image is None or image.topic(topic) is None:
        return None
    policy = image.topic_overrides(topic).get(_POLICY) or image.set_config(BROKER, "").get(f"log.{_POLICY}")
    return None if policy is None else _COMPACT in policy


def read_metadata(directory: str) -> MetadataImage:
    """Returns the image that results from the newest snapshot and all later records in the log, committed or not.

    Raises MetadataError, CorruptBatchError, CodecError, OSError.
    """
    return image_of(
        (
            record
            for path, start in newest_files(directory)
            for batch, _ in whole_batches(path, start)
            if not batch.is_control
            for record in decode_batch(batch)
        ),
        offset=0,
        epoch=0,
        timestamp_ms=0,
    )
