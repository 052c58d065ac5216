"""The file .kafka_cleanshutdown. It marks a log directory that the broker shut down cleanly, and contains the broker
epoch (KIP-966).

A starting node reads and removes the file before it loads the first log, so that a crash during loading does not look
like a clean shutdown (KAFKA-10471).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Final

from kafkacore.runtime.files import OS_FILES, Files

NAME: Final = ".kafka_cleanshutdown"
NO_EPOCH: Final = -1
_VERSION: Final = 0


def write(directory: str, broker_epoch: int, files: Files = OS_FILES) -> None:
    """Writes the file durably. This must be the last write of a node. Raises OSError."""
    files.write(os.path.join(directory, NAME), f'{{"version":{_VERSION},"brokerEpoch":{broker_epoch}}}'.encode())
    files.sync_directory(directory)


def exists(directory: str, files: Files = OS_FILES) -> bool:
    return files.exists(os.path.join(directory, NAME))


def remove(directory: str, files: Files = OS_FILES) -> None:
    """Removes the file durably if it exists. Raises OSError."""
    try:
        files.unlink(os.path.join(directory, NAME))
    except FileNotFoundError:
        return
    files.sync_directory(directory)


def read_epoch(directory: str, files: Files = OS_FILES) -> int:
    """Returns the broker epoch in the file. Returns NO_EPOCH if the file does not exist, or is empty as in Kafka before
    3.7."""
    try:
        content = json.loads(files.read(os.path.join(directory, NAME)))
    except (FileNotFoundError, ValueError):
        return NO_EPOCH
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if isinstance(epoch, int) else NO_EPOCH


def common_epoch(directories: Iterable[str], files: Files = OS_FILES) -> int:
    """Returns the previous broker epoch that a broker sends when it registers. This is the epoch that all directories
    contain, or NO_EPOCH if one of the directories was not shut down cleanly."""
    epochs = {read_epoch(directory, files) for directory in directories}
    return epochs.pop() if len(epochs) == 1 else NO_EPOCH
