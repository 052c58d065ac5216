"""`kafkacore metadata-shell`: shows the metadata of a cluster, as kafka-metadata-shell does. It can also show the
metadata at an earlier offset."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from kafkacore.inspection.findings import Findings
from kafkacore.inspection.metadata_shell import files, interactive, tree
from kafkacore.inspection.metadata_shell.commands import COMMANDS, Session
from kafkacore.inspection.metadata_shell.commands import run as run_command
from kafkacore.inspection.metadata_shell.live import Observer
from kafkacore.inspection.report import Report
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.records import MetadataError
from kafkacore.tools.admin import CONTROLLERS, LIMIT_S, Admin, AdminError, bootstrap_addresses, run_admin
from kafkacore.tools.numbers import whole_number

DESCRIPTION: Final = (
    "Shows the metadata of a cluster as a tree of files, as kafka-metadata-shell does. It reads a snapshot, the "
    "metadata log of a node (it takes no lock, so the node may be running), or a live quorum."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--snapshot", "-s", metavar="FILE", help="a snapshot (.checkpoint) or a segment (.log)")
    source.add_argument(
        "--directory",
        "-d",
        metavar="DIR",
        help="a log directory, or the __cluster_metadata-0 in one; the command takes no lock",
    )
    source.add_argument(
        "--bootstrap-controller",
        metavar="HOST:PORT,...",
        help="controllers of a live quorum; the command follows them as an observer",
    )
    parser.add_argument(
        "--at-offset",
        type=whole_number(0),
        metavar="N",
        help="show the state after the record at offset N, if it can still be reached",
    )
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="json prints one object per line"
    )
    shown = ", ".join(each.name for each in COMMANDS.values() if not each.interactive_only)
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND",
        help=f"one of {shown}, with its operands; without a command, commands are read from the terminal or from stdin",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    report = Report(sys.stdout.buffer, sys.stderr, as_json=arguments.output == "json")
    try:
        with ExitStack() as stack:
            code = _run(arguments, report, stack)
        report.flush()
    except (AdminError, MetadataError) as error:
        print(f"kafkacore: {error}", file=sys.stderr)
        return 1
    return code


def _run(arguments: argparse.Namespace, report: Report, stack: ExitStack) -> int:
    image_now, findings = _source(arguments, stack)
    session = Session(lambda: tree.root(image_now()), report)
    for text in findings.remarks:
        report.remark("remark", f"kafkacore: {text}", remark=text)
    for text in findings.problems:
        report.remark("problem", f"kafkacore: {text}", problem=text)
    if arguments.command:
        run_command(session, arguments.command, interactive=False)
    else:
        interactive.converse(session, sys.stdin)
    return 1 if findings.problems or session.failures else 0


def _source(arguments: argparse.Namespace, stack: ExitStack) -> tuple[Callable[[], MetadataImage], Findings]:
    """Returns a function that returns the current image, and the findings about the files."""
    if arguments.bootstrap_controller is None:
        image, findings = files.load(arguments.snapshot or arguments.directory, arguments.at_offset)
        return lambda: image, findings
    cluster_id = run_admin(arguments, _ask_cluster_id)
    addresses = [(each.host, each.port) for each in bootstrap_addresses(arguments.bootstrap_controller, CONTROLLERS)]
    observer = Observer(addresses, cluster_id, arguments.at_offset)
    stack.callback(observer.close)
    observer.start(LIMIT_S)
    findings = Findings()
    if arguments.at_offset is not None and observer.image.offset < arguments.at_offset:
        findings.remarks.append(
            f"offset {arguments.at_offset} is inside a batch, which takes effect as a whole: the state shown is at "
            "offset "
            f"{observer.image.offset}"
        )
    return lambda: observer.image, findings


async def _ask_cluster_id(admin: Admin) -> str:
    return str((await admin.describe_cluster()).cluster_id)
