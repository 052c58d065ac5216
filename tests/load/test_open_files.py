"""A node that runs out of file descriptors refuses new connections, but serves the existing ones."""

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
    """A node that may have only OPEN_FILES files open, including its sockets."""

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
                # The acceptor decides by the number of a new descriptor, so a few lower numbers can be free again.
                return open_files(node) >= FOR_CONNECTIONS - 16

            # The connections are opened one after another. If a client's SYN finds the backlog full, the system makes
            # that client wait for a second or more.
            wait_until(descriptors_are_taken, what="the connections to use up all descriptors")
            for _ in range(OPEN_FILES):
                one = held.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(address)
            assert open_files(node) < OPEN_FILES - 20  # the reserve of descriptors for logs remains
            honest.go_on(50)
            honest.check()
            # The new logs must open files of their own.
            answer = attacker.ask(produce("wide", [(each, batch()) for each in range(20)]))
            assert {each.error_code for each in answer.responses[0].partition_responses} == {ErrorCode.NONE}
        wait_until(lambda: open_files(node) < OPEN_FILES // 2, what="the node's close of the connections")
        assert attack(node.bootstrap, metadata("honest")).topics[0].error_code == ErrorCode.NONE
    finally:
        assert node.stop() == 0, node.child.tail()
