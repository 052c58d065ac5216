"""Moves a log to another log directory while it is in use (KIP-113)."""

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.wait.io import LogDirectory

def new_future(
    directory: LogDirectory, topic: str, index: int, topic_id: Uuid | None, settings: LogSettings, suffix: str
) -> PartitionHandle:
    """Creates the partition of a future log, which has no leader. The name of its directory consists of topic, index
    and `suffix`."""

def copy(source: PartitionHandle, into: PartitionHandle, max_bytes: int, truncations: int) -> int | None:
    """Copies about `max_bytes` bytes of records that the future log `into` lacks. Returns the number of copied bytes. A
    number below `max_bytes` means that `into` now has all records. `truncations` is the source's count of truncations
    before the caller removed from `into` the records that the source no longer has. If the count has changed, stops and
    returns None: the caller must then remove such records again. Blocking. Raises OSError if one of the directories is
    offline, or if the records of the source cannot be copied."""

def fail(handle: PartitionHandle, directory: LogDirectory, error: int) -> None:
    """Takes `directory` offline because of the errno `error`. Also makes the log fail, unless it was closed or has
    moved to another directory in the meantime. In these two cases, an ENOENT has no effect."""

def hold_still(handle: PartitionHandle) -> None:
    """Waits until no job works on the log. After that, appends wait until `go_on` is called. Blocking. Raises OSError
    if the log is closed or its directory is offline."""

def go_on(handle: PartitionHandle) -> None:
    """Ends `hold_still`. Appends continue."""

def adopt(handle: PartitionHandle, fresh: PartitionHandle) -> None:
    """Makes `handle` use the files of `fresh`. Call this after `hold_still` on `handle`, when both logs end at the same
    offset. Blocking. Raises OSError if `handle` was closed in the meantime, if its directory is offline, or if `fresh`
    ends at another offset."""
