"""A node that runs out of file descriptors refuses connections, and serves those that it has."""

import contextlib
import socket
from pathlib import Path

from attacks import HonestClient, Line, attack, batch, metadata, produce
from brokers import Node
from kafkacore._fast.plane.acceptor import descriptors_for_connections
from kafkacore.protocol.errors import ErrorCode
from processes import wait_until

OPEN_FILES = 300
FOR_CONNECTIONS = descriptors_for_connections(OPEN_FILES)


class FewFiles(Node):
    """May have only so many files open, its sockets among them."""

    def command_line(self) -> list[object]:
        return ["prlimit", f"--nofile={OPEN_FILES}:{OPEN_FILES}", "--", *super().command_line()]


def open_files(node: Node) -> int:
    return len(list(Path(f"/proc/{node.pid}/fd").iterdir()))


def test_node_serves_its_clients_when_connections_take_every_file_descriptor(tmp_path: Path) -> None:
    node = FewFiles(tmp_path / "node", "--topic", "honest:1", "--topic", "wide:20")
    questions = {"produce": produce("honest", [(0, batch())]), "metadata": metadata("honest")}
    try:
        with contextlib.ExitStack() as held, HonestClient(node.bootstrap, node.pid, questions) as honest:
            attacker = held.enter_context(Line(node.bootstrap))
            host, port = node.bootstrap.rsplit(":", 1)
            address = (host, int(port))

            def descriptors_are_taken() -> bool:
                held.enter_context(socket.create_connection(address, timeout=30))
                # An acceptor looks at the number of a new descriptor: a few below it may be free again.
                return open_files(node) >= FOR_CONNECTIONS - 16

            # One after another: the system makes a client wait for a second or more whose SYN meets a full backlog.
            wait_until(descriptors_are_taken, what="connections that take every descriptor")
            for _ in range(OPEN_FILES):
                one = held.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(address)
            assert open_files(node) < OPEN_FILES - 20  # the reserve of logs
            honest.go_on(50)
            honest.check()
            # New logs need files of their own.
            answer = attacker.ask(produce("wide", [(each, batch()) for each in range(20)]))
            assert {each.error_code for each in answer.responses[0].partition_responses} == {ErrorCode.NONE}
        wait_until(lambda: open_files(node) < OPEN_FILES // 2, what="connections that their clients closed")
        assert attack(node.bootstrap, metadata("honest")).topics[0].error_code == ErrorCode.NONE
    finally:
        assert node.stop() == 0, node.child.tail()
