"""Formats log directories, as `kafkacore storage format` does (KIP-631). It can also write the first voters of the
quorum into the metadata log (KIP-853)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from kafkacore._fast.base.uuid import Uuid
from kafkacore.config import BrokerConfig
from kafkacore.config.addresses import Address, AddressError, is_host, parse_node_id, parse_port
from kafkacore.protocol.features import (
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    MetadataVersion,
    honoured_levels,
    metadata_version,
    parse_metadata_version,
    validate_levels,
)
from kafkacore.protocol.messages import Message
from kafkacore.runtime.files import OS_FILES, Files
from kafkacore.storage import bootstrap, directories, meta_properties
from kafkacore.storage.bootstrap import InitialVoter
from kafkacore.storage.errors import reason
from kafkacore.storage.meta_properties import MetaProperties
from kafkacore.storage.scram import ScramError, parse_credential

_CLUSTER_ID_LENGTH: Final = 22  # 16 bytes in base64 without its padding
_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_NONE: Final[Mapping[str, int]] = MappingProxyType({})
_ONE_OF_THREE: Final = "--standalone, --initial-controllers or --no-initial-controllers"


class FormatError(Exception):
    """The given options cannot be used. The message names the option and the remedy."""


class FormatOptions(NamedTuple):
    """The options of `format`. `initial_controllers` lists entries of the form id@host:port:directory-id. `add_scram`
    lists the users of a new cluster, in the form that `scram.parse_credential` reads."""

    cluster_id: str
    ignore_formatted: bool = False
    release_version: str | None = None
    features: Mapping[str, int] = _NONE
    standalone: bool = False
    no_initial_controllers: bool = False
    initial_controllers: str | None = None
    add_scram: tuple[str, ...] = ()


def format_directories(
    config: BrokerConfig,
    options: FormatOptions,
    now_ms: int,
    say: Callable[[str], None] = print,
    files: Files = OS_FILES,
    random_uuid: Callable[[], Uuid] = Uuid.random,
) -> None:
    """Formats every unformatted log directory of a KRaft node, and reports each step through `say`.

    Writes meta.properties last, because this file marks a directory as formatted. Raises FormatError,
    LogDirectoryError, MalformedFileError, OSError.
    """
    if config.zookeeper_mode:
        raise FormatError("process.roles is not set: only the directories of a KRaft node are formatted")
    check_cluster_id(options.cluster_id)
    voters = initial_voters(config, options, random_uuid)
    version, levels = feature_levels(config, options)
    users = _users(options)
    loaded = directories.load(config.all_log_dirs, files)
    loaded.check(options.cluster_id, config.node_id)
    if loaded.properties and not options.ignore_formatted:
        raise FormatError(
            f"Log directory {next(iter(loaded.properties))} is already formatted. "
            "Use --ignore-formatted to ignore this directory and format the others."
        )
    for directory, error in loaded.failed.items():
        say(f"I/O error trying to read log directory {directory}. Ignoring: {reason(error)}")
    if not loaded.empty and not loaded.properties:
        raise FormatError("No available log directories to format.")
    if not loaded.empty:
        say("All of the log directories are already formatted.")
    for directory in loaded.empty:
        kind = _kind(config, directory, voters)
        say(f"Formatting {kind} {directory} with {METADATA_VERSION} {version.name}.")
        own = voters.get(config.node_id)
        is_voter = directory == config.metadata_log_dir and own is not None
        directory_id = own.directory_id if is_voter and own is not None else random_uuid()
        files.make_directories(directory)
        bootstrap.write_bootstrap(directory, levels, now_ms, files, users)
        if directory == config.metadata_log_dir and voters:
            listener = config.controller_listener_names[0]
            bootstrap.write_voters_checkpoint(directory, voters.values(), listener, now_ms, files)
        properties = MetaProperties(options.cluster_id, config.node_id, directory_id)
        meta_properties.write(directory, properties, now_ms, files)


def check_cluster_id(text: str) -> None:
    """Raises FormatError unless `text` is 16 bytes in URL-safe base64, with or without padding."""
    bare = text.removesuffix("==")
    if len(bare) != _CLUSTER_ID_LENGTH or not _BASE64.issuperset(bare):
        raise FormatError(
            f"cluster id {text!r} is not 16 bytes in URL-safe base64; `kafkacore storage random-uuid` makes one"
        )


def feature_levels(config: BrokerConfig, options: FormatOptions) -> tuple[MetadataVersion, dict[str, int]]:
    """Returns the metadata.version and the level of every feature for the new directories. Raises FormatError."""
    try:
        version = _release(options)
        levels = honoured_levels(version) | dict(options.features)
        levels[METADATA_VERSION] = version.level
        levels[KRAFT_VERSION] = _kraft_level(config, options.features.get(KRAFT_VERSION))
        validate_levels(levels)
    except ValueError as error:
        raise FormatError(str(error)) from None
    return version, levels


def _users(options: FormatOptions) -> list[Message]:
    if not options.add_scram:
        return []
    try:
        return [parse_credential(each) for each in options.add_scram]
    except ScramError as error:
        raise FormatError(str(error)) from None


def initial_voters(
    config: BrokerConfig, options: FormatOptions, random_uuid: Callable[[], Uuid] = Uuid.random
) -> dict[int, InitialVoter]:
    """Returns the first voters of the metadata log, by node id. The result is empty if controller.quorum.voters lists
    the voters, or if the node will join an existing quorum. Raises FormatError."""
    asked = options.standalone or options.initial_controllers is not None
    if sum((options.standalone, options.no_initial_controllers, options.initial_controllers is not None)) > 1:
        raise FormatError(f"only one of {_ONE_OF_THREE} can be given")
    if config.controller_quorum_voters:
        if asked:
            raise FormatError(
                "controller.quorum.voters is set, so neither --standalone nor --initial-controllers can be given; "
                "for voters that can change, replace it by controller.quorum.bootstrap.servers"
            )
        return {}
    if options.initial_controllers is not None:
        return parse_initial_controllers(options.initial_controllers)
    if options.standalone:
        return _standalone(config, random_uuid)
    if "controller" in config.process_roles and not options.no_initial_controllers:
        raise FormatError(f"controller.quorum.voters is not set on this controller: give one of {_ONE_OF_THREE}")
    return {}


def parse_initial_controllers(text: str) -> dict[int, InitialVoter]:
    """Parses entries of the form id@host:port:directory-id, separated by commas. An IPv6 address is in brackets.

    Raises FormatError, which names the entry.
    """
    voters: dict[int, InitialVoter] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        node_id, at, rest = entry.partition("@")
        address, colon, directory_id = rest.rpartition(":")
        host, port_colon, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (at and colon and port_colon and host and is_host(host)):
            raise FormatError(f"--initial-controllers entry {entry!r} must be id@host:port:directory-id")
        try:
            place = Address(host, parse_port(port, address))
            voter = InitialVoter(parse_node_id(node_id, entry), Uuid.parse(directory_id), place)
        except (AddressError, ValueError) as error:
            raise FormatError(f"--initial-controllers entry {entry!r}: {error}") from None
        if voter.node_id in voters:
            raise FormatError(f"--initial-controllers has node id {voter.node_id} twice")
        voters[voter.node_id] = voter
    if not voters:
        raise FormatError("--initial-controllers names no controller")
    return voters


def _release(options: FormatOptions) -> MetadataVersion:
    level = options.features.get(METADATA_VERSION)
    if level is not None and options.release_version is not None:
        raise FormatError(f"use --release-version instead of --feature {METADATA_VERSION}={level}, not both")
    if level is not None:
        return metadata_version(level)
    if options.release_version is not None:
        return parse_metadata_version(options.release_version)
    return LATEST_METADATA_VERSION


def _kraft_level(config: BrokerConfig, asked: int | None) -> int:
    """Returns the level of kraft.version: 1 if the metadata log holds the voters, 0 if controller.quorum.voters lists
    them. Raises FormatError if the user requested another level."""
    level = 0 if config.controller_quorum_voters else 1
    if asked not in (None, level):
        voters = "is set" if config.controller_quorum_voters else "is not set"
        raise FormatError(
            f"{KRAFT_VERSION} cannot be {asked}: controller.quorum.voters {voters}, which makes it {level}"
        )
    return level


def _standalone(config: BrokerConfig, random_uuid: Callable[[], Uuid]) -> dict[int, InitialVoter]:
    if "controller" not in config.process_roles:
        raise FormatError("--standalone is only for a controller, but process.roles does not contain controller")
    endpoint = config.advertised_controller_listeners[0]
    address = Address(endpoint.host or "localhost", endpoint.port)
    return {config.node_id: InitialVoter(config.node_id, random_uuid(), address)}


def _kind(config: BrokerConfig, directory: str, voters: Mapping[int, InitialVoter]) -> str:
    if directory != config.metadata_log_dir:
        return "data directory"
    if not voters:
        return "metadata directory"
    return "dynamic metadata voter directory" if config.node_id in voters else "dynamic metadata directory"
