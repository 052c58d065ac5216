"""Moving a log to another directory while it is in use (KIP-113)."""

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.wait.io import LogDirectory

def new_future(
    directory: LogDirectory, topic: str, index: int, topic_id: Uuid | None, settings: LogSettings, suffix: str
) -> PartitionHandle:
    """The partition of a future log: its directory is named by topic, index and `suffix`. It has no leader."""

def copy(source: PartitionHandle, into: PartitionHandle, max_bytes: int) -> int:
    """Copies about `max_bytes` that the future log `into` lacks. Returns how many bytes it copied: fewer than
    `max_bytes` when `into` has everything. Blocking. Raises OSError when one of the directories is offline, or when the
    records of the source cannot be copied."""

def fail(handle: PartitionHandle, directory: LogDirectory, error: int) -> None:
    """Fails the directory, and the log with it, unless the log has moved to another directory meanwhile."""

def hold_still(handle: PartitionHandle) -> None:
    """Waits until no job works on the log. From then on appends wait until `go_on`. Blocking. Raises OSError when the
    log is closed or its directory is offline."""

def go_on(handle: PartitionHandle) -> None:
    """Ends `hold_still`: appends continue."""

def adopt(handle: PartitionHandle, fresh: PartitionHandle) -> None:
    """Makes `handle` use the files of `fresh`. `handle` holds still, and both logs end at the same offset. Blocking.
    Raises OSError when `handle` was closed meanwhile, its directory is offline, or `fresh` ends at another offset."""
