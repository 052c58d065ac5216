"""`kafkacore cluster cluster-id | list-endpoints | unregister`, as kafka-cluster.sh (KIP-631, KIP-919)."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.tools.admin import BROKERS, Admin, AdminError, add_endpoints, check, run_admin

DESCRIPTION: Final = "Shows a cluster's id and the endpoints of its nodes, and unregisters brokers."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in (
        ("cluster-id", "show the id of the cluster"),
        ("list-endpoints", "show the brokers or the controllers, with their addresses"),
        ("unregister", "unregister a broker that will not return"),
    ):
        command = commands.add_parser(name, help=summary)
        add_endpoints(command, "-b", "-C")
        if name == "list-endpoints":
            command.add_argument("--include-fenced-brokers", action="store_true", help="also show fenced brokers")
        elif name == "unregister":
            command.add_argument("--id", "-i", type=int, required=True, metavar="ID", help="the broker's node.id")


def run(arguments: argparse.Namespace) -> int:
    try:
        match arguments.command:
            case "cluster-id":
                print(f"Cluster ID: {run_admin(arguments, Admin.describe_cluster).cluster_id}")
            case "list-endpoints":
                print("\n".join(_list_endpoints(arguments)))
            case "unregister":
                _unregister(arguments)
    except AdminError as error:
        print(f"kafkacore: {error}", file=sys.stderr)
        return 1
    return 0


def _list_endpoints(arguments: argparse.Namespace) -> list[str]:
    fenced = arguments.include_fenced_brokers
    if fenced and not arguments.bootstrap_server:
        raise AdminError("--include-fenced-brokers needs --bootstrap-server")

    async def ask(admin: Admin) -> tuple[int, Any]:
        return admin.kind, (await admin.describe_cluster(include_fenced=fenced)).brokers

    kind, nodes = run_admin(arguments, ask)
    host_width = max([len("HOST"), *(len(node.host) for node in nodes)])
    rows = [("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")]
    rows += [
        (
            str(node.broker_id),
            node.host,
            str(node.port),
            node.rack or "null",
            "fenced" if kind == BROKERS and node.is_fenced else "unfenced",
            "broker" if kind == BROKERS else "controller",
        )
        for node in nodes
    ]
    return [_row(row, host_width, with_state=kind == BROKERS) for row in rows]


def _row(row: tuple[str, ...], host_width: int, *, with_state: bool) -> str:
    node_id, host, port, rack, state, kind = row
    cells = [f"{node_id:<10}", f"{host:<{host_width}}", f"{port:<10}", f"{rack:<10}"]
    return " ".join([*cells, *([f"{state:<10}"] if with_state else []), f"{kind:<15}"])


def _unregister(arguments: argparse.Namespace) -> None:
    request = apis.request_class(ApiKey.UNREGISTER_BROKER)(broker_id=arguments.id)
    answer = run_admin(arguments, lambda admin: admin.ask_controller(request, lambda answer: int(answer.error_code)))
    check(answer.error_code, answer.error_message)
    print(f"Broker {arguments.id} is no longer registered.")
