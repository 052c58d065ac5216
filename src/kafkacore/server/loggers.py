"""Describes and changes the levels of loggers, as if they were settings of a broker (KIP-412). A change lasts until the
process ends, and all nodes of the process share it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Final

from kafkacore.config.changes import APPEND, DELETE, NAMES, SET, SUBTRACT
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import IncrementalAlterConfigsRequest as Request

LOG: Final = logging.getLogger("kafkacore.server")
ROOT: Final = "root"
# Only loggers below these names are shown, because the others belong to other libraries.
OURS: Final = ("kafkacore", "kafka")
TRACE: Final = 5
LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": TRACE,
    "WARN": logging.WARNING,
}


def levels() -> dict[str, str]:
    """Returns the level of each logger, by Kafka's name for the logger. A logger without a level uses the level of its
    nearest parent that has one."""
    return {name: _level_name(logging.getLogger(name).getEffectiveLevel()) for name in _names()}


def alter(node_id: int, resource: Request.AlterConfigsResource, *, validate_only: bool) -> None:
    """Applies all changes of one resource of an IncrementalAlterConfigs request. If a change is invalid, applies none
    of them and raises INVALID_REQUEST or INVALID_CONFIG."""
    _check_node(node_id, resource.resource_name)
    known = set(_names())
    for config in resource.configs:
        _check(config, known)
    if validate_only:
        return
    for config in resource.configs:
        level = LEVELS[config.value or ""] if config.config_operation == SET else logging.NOTSET
        logging.getLogger(config.name).setLevel(level)
        LOG.warning("the level of logger %s is now %s", config.name, config.value if level else "its parent's")


def _names() -> Sequence[str]:
    return (ROOT, *sorted(_below()))


def _below() -> Iterator[str]:
    for name in logging.root.manager.loggerDict:
        if name.partition(".")[0] in OURS:
            yield name


def _level_name(level: int) -> str:
    """Returns the most verbose of Kafka's levels that shows no more messages than `level`. Returns OFF for values above
    all of Kafka's levels, and ALL for NOTSET."""
    found = [name for name, number in LEVELS.items() if number >= level]
    if level <= logging.NOTSET:
        return "ALL"
    return min(found, key=LEVELS.__getitem__) if found else "OFF"


def _check_node(node_id: int, name: str) -> None:
    try:
        asked = int(name)
    except ValueError:
        raise error_for(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if asked != node_id:
        raise error_for(ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {asked}")


def _check(config: Request.AlterableConfig, known: set[str]) -> None:
    operation, name = config.config_operation, config.name
    if operation in (APPEND, SUBTRACT):
        problem = f"{NAMES[operation]} operation is not allowed for the BROKER_LOGGER resource"
        raise error_for(ErrorCode.INVALID_REQUEST, problem)
    if operation not in (SET, DELETE):
        problem = f"Unknown operation type {operation} is not allowed for the BROKER_LOGGER resource"
        raise error_for(ErrorCode.INVALID_REQUEST, problem)
    if name not in known:
        raise error_for(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == DELETE and name == ROOT:
        raise error_for(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
    if operation == SET and config.value not in LEVELS:
        raise error_for(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {config.value} as it is not a supported log level. Valid log "
            f"levels are {', '.join(sorted(LEVELS))}",
        )
