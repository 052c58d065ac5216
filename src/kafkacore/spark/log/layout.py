"""The files of log directories: the broker, the partition and the segment to which each file belongs.

The directory of a running broker changes while this module reads it. The cleaner writes `.cleaned` files, and renames
them to `.swap`. Then it gives the replaced segments the suffix `.deleted`. Retention also gives segments this suffix.
"""

import glob
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from kafkacore._fast.record.batch import CorruptBatchError
from kafkacore._fast.record.batch_scan import BatchScan
from kafkacore.spark.errors import ChangingDirectoryError, OptionError
from kafkacore.storage import meta_properties, names
from kafkacore.storage.errors import MalformedFileError

NO_BROKER: Final = -1
_SWAPPED: Final = names.LOG + names.SWAP
_WHOLE: Final = 1 << 31  # larger than any batch
_MOST_LOOKS: Final = 60
_LEAST_PAUSE_S: Final = 0.001
_MOST_PAUSE_S: Final = 1.0


class LogDirectory(NamedTuple):
    """A directory that contains partition directories. `broker` is the id in its meta.properties, or NO_BROKER."""

    path: str
    broker: int


class Replica(NamedTuple):
    """The directory of one replica. `topic` may be truncated if the directory's name says that the replica is deleted
    or stray."""

    log_dir: LogDirectory
    path: str
    topic: str
    partition: int
    kind: names.Kind


class Segment(NamedTuple):
    """The file that holds a segment's records, as it was at the time of the listing. If `active`, the broker appends to
    the segment.

    `next_offset` is the base offset of the next segment, or None for the last segment. `inode` and `modified_ns` serve
    to detect that the cleaner has put another file in the place of the listed one. The device is left out, because the
    device number of a network file system differs between machines. `inode` is None for a snapshot, which nothing
    replaces.
    """

    replica: Replica
    path: str
    base_offset: int
    size: int
    active: bool
    next_offset: int | None = None
    inode: int | None = None
    modified_ns: int = 0

    def is_at(self, path: str) -> bool:
        """Returns whether the file at `path` is the listed one. The last segment may have grown since the listing."""
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return False
        if self.inode is None:
            return True
        if self.next_offset is None:
            return found.st_ino == self.inode and found.st_size >= self.size
        return (found.st_ino, found.st_size, found.st_mtime_ns) == (self.inode, self.size, self.modified_ns)


def log_directories(paths: Sequence[str]) -> list[tuple[LogDirectory, str | None]]:
    """Returns the log directories to which `paths` lead, each with a second value. If a path is the directory of one
    replica, the second value is this directory, otherwise None.

    A path is a log directory, the directory of one replica, or a pattern that matches such directories.

    Raises:
        OptionError: a path matches nothing, or matches a directory of another kind.
    """
    found = []
    for pattern in paths:
        matches = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        directories = [os.path.abspath(match) for match in matches if os.path.isdir(match)]
        if not directories:
            raise OptionError(f"option path names {pattern!r}, but there is no such directory")
        found += [_log_directory(path) for path in directories]
    return found


def _log_directory(path: str) -> tuple[LogDirectory, str | None]:
    is_replica = names.parse_partition_directory(os.path.basename(path)) is not None
    if is_replica and any(names.parse_file_name(name) for name in os.listdir(path)):
        parent = os.path.dirname(path)
        return LogDirectory(parent, _broker(parent)), path
    holds = os.path.exists(meta_properties.path_in(path)) or any(map(names.parse_partition_directory, os.listdir(path)))
    if not holds:
        raise OptionError(
            f"option path names {path}, which has neither meta.properties nor directories of partitions: name a log"
            " directory (log.dirs) or the directory of one partition"
        )
    return LogDirectory(path, _broker(path)), None


def _broker(log_dir: str) -> int:
    try:
        properties = meta_properties.read(log_dir)
    except (OSError, MalformedFileError):
        return NO_BROKER
    return NO_BROKER if properties is None or properties.node_id is None else properties.node_id


def replicas(log_dir: LogDirectory, only: str | None, kinds: Iterable[names.Kind]) -> Iterator[Replica]:
    """Returns the replicas in a log directory whose directory names are of one of `kinds`, such as deleted or stray. If
    `only` is given, returns just the replica in that directory."""
    wanted = set(kinds)
    for name in sorted(os.listdir(log_dir.path) if only is None else [os.path.basename(only)]):
        parsed = names.parse_partition_directory(name)
        path = os.path.join(log_dir.path, name)
        if parsed is not None and (only is not None or parsed.kind in wanted) and os.path.isdir(path):
            yield Replica(log_dir, path, parsed.topic, parsed.partition, parsed.kind)


class Looks:
    """Counts the looks at a directory that changes while it is read, and pauses between them. The pauses grow, so that
    the cleaner can finish a pass that replaces one segment after another. All looks together take about a minute."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._count = 1

    def again(self) -> None:
        """Waits until the next look. Raises ChangingDirectoryError after the last one."""
        if self._count == _MOST_LOOKS:
            raise ChangingDirectoryError(
                f"{self._path}: the cleaner replaced segments during each of {_MOST_LOOKS} looks at this directory: "
                "read it when the cleaner is idle, stop the broker, or read a snapshot of the file system"
            )
        time.sleep(min(_LEAST_PAUSE_S * (1 << min(self._count, 30)), _MOST_PAUSE_S))
        self._count += 1


def segments(replica: Replica) -> list[Segment]:
    """Returns the present segments of a replica, by offset. Leaves out files that vanish while it reads the
    directory. Raises ChangingDirectoryError.

    The cleaner can replace segments while this function looks at one file after another. Then the list would contain
    both the new file and a segment that the new file replaces. So the function looks twice, and begins again if the
    cleaner has replaced files meanwhile. A roll adds segments at the end, and retention removes segments at the start.
    The function ignores both changes when it compares two looks, so a busy broker does not keep it waiting.
    """
    looks = Looks(replica.path)
    while True:
        before = _look(replica)
        ordered = _in_order(replica, *before)
        after = _look(replica)
        first, last = min(_bases(after), default=math.inf), max(_bases(before), default=math.inf)
        if _files(before, first, last) == _files(after, first, last):
            return [segment for segment in ordered if segment.base_offset >= first]
        looks.again()


_Found = dict[int, os.stat_result]


def _look(replica: Replica) -> tuple[_Found, _Found]:
    """Returns the segments and the `.swap` files in the directory of a replica, by base offset."""
    plain: _Found = {}
    swapped: _Found = {}
    try:
        listed = os.listdir(replica.path)
    except FileNotFoundError:  # the partition was deleted
        return plain, swapped
    for name in listed:
        parsed = names.parse_file_name(name)
        if parsed is None or parsed[1] not in (names.LOG, _SWAPPED):
            continue
        try:
            found = os.stat(os.path.join(replica.path, name))
        except FileNotFoundError:
            continue
        (plain if parsed[1] == names.LOG else swapped)[parsed[0]] = found
    return plain, swapped


def _bases(found: tuple[_Found, _Found]) -> set[int]:
    return found[0].keys() | found[1].keys()


def _files(found: tuple[_Found, _Found], first: float, last: float) -> list[dict[int, int]]:
    return [{base: stat.st_ino for base, stat in each.items() if first <= base <= last} for each in found]


def _in_order(replica: Replica, plain: _Found, swapped: _Found) -> list[Segment]:
    found = {base: _segment(replica, _path(replica, base, names.LOG), base, stat) for base, stat in plain.items()}
    # A `.swap` file is complete, and replaces every old segment in its range. The first old segment may outlast the
    # others, so its presence does not mean that they still exist.
    for base, stat in swapped.items():
        path = _path(replica, base, _SWAPPED)
        end = _end_offset(path)
        for replaced in [other for other in found if base <= other < end]:
            del found[replaced]
        found[base] = _segment(replica, path, base, stat)
    bases = sorted(found)
    ordered = [found[base]._replace(next_offset=after) for base, after in zip_longest(bases, bases[1:])]
    if ordered and replica.kind is names.Kind.LIVE:
        ordered[-1] = ordered[-1]._replace(active=True)
    return ordered


def _segment(replica: Replica, path: str, base: int, stat: os.stat_result) -> Segment:
    return Segment(replica, path, base, stat.st_size, False, inode=stat.st_ino, modified_ns=stat.st_mtime_ns)


def _path(replica: Replica, base_offset: int, suffix: str) -> str:
    return os.path.join(replica.path, names.file_name(base_offset, suffix))


def _end_offset(path: str) -> int:
    end = 0
    try:
        with BatchScan(path) as scan:
            while (offsets := scan.batch_at(scan.position, _WHOLE)) is not None:
                end = offsets[1] + 1
    except (CorruptBatchError, FileNotFoundError):
        pass
    return end


def present(segment: Segment) -> str | None:
    """Returns the current path of a segment that `segments` listed, or None if the file is gone or replaced. A deletion
    may have renamed the file to `.deleted`, or the cleaner may have renamed a `.swap` file to a plain segment."""
    plain = segment.path.removesuffix(names.SWAP)
    for candidate in (segment.path, plain, plain + names.DELETED):
        if segment.is_at(candidate):
            return candidate
    return None
