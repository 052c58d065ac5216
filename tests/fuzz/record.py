"""Records requests that real clients send to Apache Kafka, with a proxy between them. The requests are seeds for the
fuzzer.

Usage, from the repository's root: .venv/bin/python tests/fuzz/record.py. Writes tests/fuzz/corpus/CLIENT.bin. A file
contains frames as they were sent, each after its length, and only a few for each API and version.
"""

import collections
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "support"))

from brokers import ApacheKafka  # noqa: E402
from kafkacore.runtime.ports import free_ports  # noqa: E402

KEPT_OF_EACH_KIND = 3
LARGEST_FRAME = 2000
CLIENTS = (
    "test_confluent_kafka.py",
    "test_aiokafka.py",
    "test_kafka_python.py",
    "test_java_client.py",
    "test_kafka_tools.py",
)


class Proxy:
    """A proxy that forwards connections and stores whole requests, but only a few for each API key and version."""

    def __init__(self, port, target):
        self.target, self.frames, self.kinds = target, [], collections.Counter()
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(self.target)
            threading.Thread(target=self.forward, args=(client, server, self.keep), daemon=True).start()
            threading.Thread(target=self.forward, args=(server, client, lambda data: b""), daemon=True).start()

    def forward(self, source, sink, keep):
        rest = b""
        try:
            while data := source.recv(65536):
                sink.sendall(data)
                rest = keep(rest + data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            sink.close()

    def keep(self, data):
        """Removes whole frames from the beginning of `data` and stores them. Returns the rest of `data`."""
        while len(data) >= 4 and len(data) >= 4 + (size := struct.unpack(">i", data[:4])[0]):
            frame, data = data[: 4 + size], data[4 + size :]
            kind = frame[4:8]
            if len(frame) <= LARGEST_FRAME and self.kinds[kind] < KEPT_OF_EACH_KIND:
                self.kinds[kind] += 1
                self.frames.append(frame)
        return data


def main():
    directory = tempfile.mkdtemp()
    listening, hidden, controller = free_ports(3)
    overrides = {
        "listeners": f"PLAINTEXT://127.0.0.1:{hidden},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{listening}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
    }
    # The broker advertises the address of the proxy, so all clients connect to the proxy.
    proxy = Proxy(listening, ("127.0.0.1", hidden))
    broker = ApacheKafka("apache-4.3", directory, overrides)
    for client in CLIENTS:
        proxy.frames, proxy.kinds = [], collections.Counter()
        subprocess.run(
            [sys.executable, "-m", "pytest", HERE.parent / "clients" / client, "-x"],
            env={**os.environ, "KAFKACORE_TEST_BOOTSTRAP": f"127.0.0.1:{listening}",
                 "KAFKACORE_TEST_LOG_DIR": str(broker.log_dir)},
            check=False,
        )  # fmt: skip
        name = client.removeprefix("test_").removesuffix(".py")
        (HERE / "corpus" / f"{name}.bin").write_bytes(b"".join(proxy.frames))
        print(name, len(proxy.frames), "frames", sum(map(len, proxy.frames)), "bytes")
    broker.stop()


if __name__ == "__main__":
    main()
