"""Moving a log to another directory while it is in use (KIP-113)."""

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.wait.io import LogDirectory

def new_future(
    directory: LogDirectory, topic: str, index: int, topic_id: Uuid | None, settings: LogSettings, suffix: str
) -> PartitionHandle:
    """A partition whose directory's name has a suffix behind topic and index. Nobody leads it."""

def copy(source: PartitionHandle, into: PartitionHandle, max_bytes: int) -> int:
    """Appends to the future log `into` what it lacks, about `max_bytes` of it. Blocking. How many bytes; less than
    asked for when it has everything. Raises OSError when one of the directories is offline, or the source has no
    records that can be copied."""

def fail(handle: PartitionHandle, directory: LogDirectory, error: int) -> None:
    """The directory failed, and the log with it, unless it has moved to another one meanwhile."""

def hold_still(handle: PartitionHandle) -> None:
    """Blocking: waits for what is under way. Appends wait from now on, until `go_on`. Raises OSError when the log is
    closed or its directory offline."""

def go_on(handle: PartitionHandle) -> None:
    """The end of `hold_still`."""

def adopt(handle: PartitionHandle, fresh: PartitionHandle) -> None:
    """`handle`, which holds still, goes on with the files of `fresh`, which ends where it does. Blocking. Raises
    OSError when it was closed meanwhile, its directory is offline, or `fresh` ends elsewhere."""
