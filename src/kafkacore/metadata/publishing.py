"""Publishes the committed image of a broker. Applies batches of records, and passes each new image with its delta to
the subscribers.

An image is not published while a metadata transaction is open, because the records of the transaction take effect only
when the transaction ends (KIP-868).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafkacore.metadata.delta import MetadataDelta
from kafkacore.metadata.edit import next_root
from kafkacore.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkacore.metadata.partition_records import Record, Records, record_count
from kafkacore.metadata.snapshot import image_of

# Receives an image, and the delta since the previous image that this subscriber received. The delta is None if
# everything may have changed, for example because a snapshot was loaded.
Subscriber = Callable[[MetadataImage, MetadataDelta | None], None]


class MetadataPublisher:
    """Publishes images. Must be used on one event loop only. But any thread can read `image`, the newest published
    image.
    """

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self._head: MetadataImage = EMPTY_IMAGE
        self._unpublished = MetadataDelta()
        self._untold = False
        self._subscribers: list[Subscriber] = []
        # The offset of the last replayed record. All subscribers have received the images up to this offset. Heartbeats
        # report the offset to the controller.
        self.applied_offset = EMPTY_IMAGE.offset

    def subscribe(self, subscriber: Subscriber) -> None:
        """Calls `subscriber` for each published image, and immediately if an image is already published. Subscribers
        are called in the order of subscription.
        """
        self._subscribers.append(subscriber)
        if self.image is not EMPTY_IMAGE:
            subscriber(self.image, None)

    def apply(self, records: Records, base_offset: int, epoch: int, timestamp_ms: int) -> None:
        """Applies a committed batch of records. If this raises MetadataError, nothing has changed, and the node must
        stop."""
        self._replay(records, base_offset, base_offset + record_count(records) - 1, epoch, timestamp_ms)

    def skip(self, last_offset: int, epoch: int, timestamp_ms: int) -> None:
        """Skips a batch that contains only control records. Only the image's offset changes."""
        self._replay((), last_offset, last_offset, epoch, timestamp_ms)

    def load_snapshot(self, records: Iterable[Record], offset: int, epoch: int, timestamp_ms: int) -> None:
        """Replaces all applied metadata with a snapshot. `offset` is the offset of the last log record that the
        snapshot includes."""
        self.replace(image_of(records, offset, epoch, timestamp_ms))

    def replace(self, image: MetadataImage) -> None:
        """Replaces all applied metadata with the image of a snapshot."""
        self._head = image
        self._unpublished = MetadataDelta()
        self._publish(None)
        self.applied_offset = image.offset

    def adopt(self, head: MetadataImage, delta: MetadataDelta | None) -> None:
        """Publishes the next image of a controller in this process, so that the broker need not replay the records
        again. An image never changes, so the controller and the broker can share it. `delta` is None if everything may
        have changed.
        """
        self._advance(head, delta)

    def _replay(self, records: Records, base: int, last: int, epoch: int, timestamp_ms: int) -> None:
        self._advance(*next_root(self._head, records, (base, last), epoch, timestamp_ms))

    def _advance(self, head: MetadataImage, delta: MetadataDelta | None) -> None:
        self._head = head
        if delta is None:
            # A transaction was aborted, or the controller has loaded a snapshot. `_unpublished` can then contain rows
            # that the image lacks, so subscribers get None instead.
            self._untold = True
        else:
            self._unpublished.add(delta)
        if head.transaction is None:
            told = None if self._untold else self._unpublished
            self._untold, self._unpublished = False, MetadataDelta()
            self._publish(told)
        self.applied_offset = head.offset

    def _publish(self, delta: MetadataDelta | None) -> None:
        self.image = self._head
        for subscriber in self._subscribers:
            subscriber(self.image, delta)
