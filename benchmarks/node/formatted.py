"""Makes a directory with `kafkacore storage format`, and gives the command that starts a node on it."""

import subprocess

from kafkacore.runtime.ports import free_ports
from processes import ROOT

KAFKACORE = ROOT / ".venv" / "bin" / "kafkacore"
CLUSTER_ID = "kafkacoreBenchAAAAAAAA"


def formatted(directory):
    """Returns the address and the server.properties of a node whose directory is formatted."""
    data, control = free_ports(2)
    properties = directory / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{control}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{data},CONTROLLER://127.0.0.1:{control}\n"
        "controller.listener.names=CONTROLLER\n"
        f"log.dirs={directory / 'data'}\n"
    )
    subprocess.run(
        [KAFKACORE, "storage", "format", "-t", CLUSTER_ID, "-c", properties], check=True, capture_output=True
    )
    return f"127.0.0.1:{data}", properties


class Formatted:
    """A stopped broker in the form that `benchmarks.peers.start` needs."""

    def __init__(self, directory):
        directory.mkdir(parents=True)
        self.log = directory / "log"
        self.bootstrap, self._properties = formatted(directory)

    def command_line(self):
        return [KAFKACORE, "start", self._properties]

    def stop(self):
        """Does nothing, because no process runs between the starts."""
