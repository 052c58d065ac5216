"""`kafkacore features describe | upgrade | downgrade | disable | version-mapping | feature-dependencies`, as
kafka-features.sh (KIP-584, KIP-1022)."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import error_for
from kafkacore.protocol.features import (
    FEATURES,
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    MetadataVersion,
    default_levels,
    metadata_version,
    parse_metadata_version,
)
from kafkacore.protocol.response_errors import error_of_peer
from kafkacore.tools.admin import Admin, AdminError, add_endpoints, check, run_admin

DESCRIPTION: Final = "Describes the features of a cluster, and changes their levels."
LEVEL_MAX: Final = 0x7FFF
TIMEOUT_MS: Final = 60_000
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_endpoints(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("describe", help="show the supported and finalized levels of every feature")
    for name, summary in (("upgrade", "raise levels"), ("downgrade", "lower levels")):
        command = commands.add_parser(name, help=summary)
        to = command.add_mutually_exclusive_group(required=True)
        to.add_argument("--feature", action="append", metavar="NAME=LEVEL", help="may be given several times")
        to.add_argument("--metadata", metavar="VERSION", help="the name of a metadata.version, for example 4.0-IV1")
        to.add_argument("--release-version", metavar="VERSION", help="all default levels of this release")
        _add_common(command, unsafe=name == "downgrade")
    disable = commands.add_parser("disable", help="set features to level 0")
    disable.add_argument("--feature", action="append", required=True, metavar="NAME", help="may be given several times")
    _add_common(disable, unsafe=True)
    mapping = commands.add_parser("version-mapping", help="show the default levels of a release")
    mapping.add_argument("--release-version", metavar="VERSION", help="default: the latest")
    needs = commands.add_parser("feature-dependencies", help="show which levels a feature requires of other features")
    needs.add_argument(
        "--feature", action="append", required=True, metavar="NAME=LEVEL", help="may be given several times"
    )


def _add_common(command: argparse.ArgumentParser, *, unsafe: bool) -> None:
    command.add_argument("--dry-run", action="store_true", help="only ask whether the change is possible")
    if unsafe:
        command.add_argument("--unsafe", action="store_true", help="also if metadata would be lost")


def run(arguments: argparse.Namespace) -> int:
    try:
        match arguments.command:
            case "describe":
                print("\n".join(run_admin(arguments, _describe)))
            case "version-mapping":
                print("\n".join(_version_mapping(arguments.release_version)))
            case "feature-dependencies":
                print("\n".join(_dependencies(arguments.feature)))
            case _:
                _update(arguments)
    except AdminError as error:
        print(f"kafkacore: {error}", file=sys.stderr)
        return 1
    return 0


async def _describe(admin: Admin) -> list[str]:
    versions = await admin.ask(
        apis.request_class(ApiKey.API_VERSIONS)(client_software_name="kafkacore", client_software_version="1")
    )
    check(versions.error_code, None)
    supported = {each.name: (each.min_version, each.max_version) for each in versions.supported_features}
    finalized = {each.name: each.max_version_level for each in versions.finalized_features}
    epoch = "-" if versions.finalized_features_epoch < 0 else str(versions.finalized_features_epoch)
    lines = []
    for name in sorted({*supported, *finalized}):
        lowest, highest = supported.get(name, (0, 0))
        cells = (
            f"Feature: {name:<40}",
            f"SupportedMinVersion: {_level(name, lowest):<15}",
            f"SupportedMaxVersion: {_level(name, highest):<15}",
            f"FinalizedVersionLevel: {_level(name, finalized.get(name, 0)):<15}",
            f"Epoch: {epoch}",
        )
        lines.append("  ".join(cells))
    return lines


def _level(name: str, level: int) -> str:
    """Returns a metadata.version by its name if the name is known, and any other level as a number."""
    if name == METADATA_VERSION:
        try:
            return metadata_version(level).name
        except ValueError:
            return f"UNKNOWN [{level}]"
    return str(level)


def _update(arguments: argparse.Namespace) -> None:
    operation, levels = arguments.command, _levels_asked(arguments)
    kind = UPGRADE
    if operation != "upgrade":
        kind = UNSAFE_DOWNGRADE if arguments.unsafe else SAFE_DOWNGRADE
    request_class = apis.request_class(ApiKey.UPDATE_FEATURES)
    updates = [
        request_class.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level in levels.items()
    ]
    request = request_class(timeout_ms=TIMEOUT_MS, feature_updates=updates, validate_only=arguments.dry_run)
    answer = run_admin(arguments, lambda admin: admin.ask_controller(request, lambda answer: int(answer.error_code)))
    if failed := _report(operation, levels, _failures(levels, answer), dry_run=arguments.dry_run):
        raise AdminError(f"{failed} out of {len(levels)} operation(s) failed.")


def _failures(levels: dict[str, int], answer: Any) -> dict[str, str]:
    """Returns the reason for each feature whose change failed. An error of the whole request applies to every
    feature."""
    if answer.error_code:
        why = answer.error_message or str(error_for(error_of_peer(answer.error_code)))
        return dict.fromkeys(levels, why)
    return {
        each.feature: each.error_message or str(error_for(error_of_peer(each.error_code)))
        for each in answer.results
        if each.error_code
    }


def _report(operation: str, levels: dict[str, int], failures: dict[str, str], *, dry_run: bool) -> int:
    for name, level in sorted(levels.items()):
        to = "" if operation == "disable" else f" to {level}"
        if name in failures:
            print(f"{'Can' if dry_run else 'Could'} not {operation} {name}{to}. {failures[name]}")
        else:
            print(f"{name} {'can be' if dry_run else 'was'} {operation}d{to}.")
    return len(failures)


def _levels_asked(arguments: argparse.Namespace) -> dict[str, int]:
    if arguments.command == "disable":
        return dict.fromkeys(_once(arguments.feature), 0)
    if arguments.feature:
        levels = dict(map(_parse, arguments.feature))
        if len(levels) < len(arguments.feature):
            _once([_parse(text)[0] for text in arguments.feature])
        return levels
    if arguments.metadata:
        return {METADATA_VERSION: _parse_release(arguments.metadata).level}
    defaults = _mapping(_parse_release(arguments.release_version))
    # No upgrade leads to level 0, because every feature begins at this level.
    return {name: level for name, level in defaults.items() if level > 0 or arguments.command != "upgrade"}


def _once(names: list[str]) -> list[str]:
    for name in names:
        if names.count(name) > 1:
            raise AdminError(f"Feature {name} was specified more than once.")
    return names


def _parse(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    try:
        number = int(level)
    except ValueError:
        number = -1
    if not equals or not 0 <= number <= LEVEL_MAX:
        raise AdminError(f"--feature {text!r} must be NAME=LEVEL, for example kraft.version=1")
    return name.strip(), number


def _parse_release(text: str) -> MetadataVersion:
    try:
        return parse_metadata_version(text)
    except ValueError as error:
        raise AdminError(str(error)) from None


def _mapping(version: MetadataVersion) -> dict[str, int]:
    """Returns the feature levels to which Apache Kafka's tool upgrades a cluster for `version`, in the tool's order."""
    return default_levels(version) | {KRAFT_VERSION: FEATURES[KRAFT_VERSION].highest}


def _version_mapping(release: str | None) -> list[str]:
    version = _parse_release(release) if release else LATEST_METADATA_VERSION
    levels = _mapping(version)
    first = f"{METADATA_VERSION}={levels.pop(METADATA_VERSION)} ({release or version.name})"
    return [first, *(f"{name}={level}" for name, level in levels.items())]


def _dependencies(texts: list[str]) -> list[str]:
    lines = []
    for name, level in map(_parse, texts):
        feature = FEATURES.get(name)
        if feature is None:
            raise AdminError(f"Unknown feature: {name}")
        if not feature.lowest <= level <= feature.highest:
            raise AdminError(f"{name} has no level {level}, only {feature.lowest} to {feature.highest}")
        needs = feature.needs.get(level, {})
        lines.append(f"{_named(name, level)} {'requires:' if needs else 'has no dependencies.'}")
        lines += [f"    {_named(other, needed)}" for other, needed in needs.items()]
    return lines


def _named(name: str, level: int) -> str:
    return f"{name}={level}" + (f" ({metadata_version(level).name})" if name == METADATA_VERSION else "")
