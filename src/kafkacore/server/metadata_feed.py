"""Passes committed metadata from the replica of the metadata log to the broker's publisher, on the broker's loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkacore.metadata.delta import MetadataDelta
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.publishing import MetadataPublisher
from kafkacore.metadata.records import RecordWriter
from kafkacore.metadata.snapshot import ImageLoad, records_of
from kafkacore.protocol.features import METADATA_VERSION
from kafkacore.protocol.messages import Message
from kafkacore.raft.committed import CommittedBatch, SnapshotLoad
from kafkacore.raft.snapshotting import Contents
from kafkacore.runtime.loops import LoopThread


class _LoadElsewhere:
    """Loads a snapshot on another loop, each part in its own turn of that loop."""

    def __init__(self, load: ImageLoad, call: Callable[..., None]) -> None:
        self._load, self._call = load, call

    def take(self, records: Sequence[Message]) -> None:
        self._call(self._load.take, records)

    def finish(self) -> None:
        self._call(self._load.finish)


class MetadataFeed:
    """Passes metadata to the broker's publisher. `on_root` receives metadata images from a controller in the same node.
    Without such a controller, the feed listens to the broker's own replica.

    If this broker cannot apply metadata, `on_fault` is called with the error. Then the node must stop.
    """

    def __init__(
        self, publisher: MetadataPublisher, loop: LoopThread, on_fault: Callable[[BaseException], None]
    ) -> None:
        self.publisher = publisher
        self._loop = loop
        self._on_fault = on_fault
        self._failed = False

    def on_root(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        self._loop.call(self._guarded, self.publisher.adopt, image, delta)

    def on_batch(self, batch: CommittedBatch) -> None:
        self._loop.call(self._apply, batch)

    def begin_snapshot(self, offset: int, epoch: int, timestamp_ms: int) -> SnapshotLoad:
        return _LoadElsewhere(
            ImageLoad(offset, epoch, timestamp_ms, self.publisher.replace),
            lambda *work: self._loop.call(self._guarded, *work),
        )

    def on_leading(self, epoch: int) -> None:
        """Does nothing, because a broker applies committed records under any leader of the quorum."""

    def on_following(self, epoch: int) -> None:
        """Does nothing, because a broker applies committed records under any leader of the quorum."""

    def snapshot(self) -> Contents | None:
        """Returns the state that the broker has applied, for snapshots of a replica without a controller. Returns None
        until the metadata contains a metadata.version."""

        image = self.publisher.image
        if METADATA_VERSION not in image.features:
            return None
        writer = RecordWriter(image.metadata_version)
        return Contents(image.offset, image.epoch, image.timestamp_ms, map(writer.encode, records_of(image)))

    def _apply(self, batch: CommittedBatch) -> None:
        if batch.records:
            self._guarded(self.publisher.apply, batch.records, batch.base_offset, batch.epoch, batch.timestamp_ms)
        else:
            self._guarded(self.publisher.skip, batch.last_offset, batch.epoch, batch.timestamp_ms)

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        if self._failed:
            return
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 - after any error the image no longer matches the log
            self._failed = True
            self._on_fault(error)
