"""A network of hosts on one machine. Each node has a network namespace, and a bridge connects all of them.

`cut(a, b)` silently drops packets from `a` to `b`, like a dead link. Connections stay open on both sides. Network
namespaces need root.
"""

import contextlib
import os
import subprocess
import warnings

import pytest

PREFIX = f"kc{os.getpid() % 10_000}"
# No interface has this address, so no host accepts packets that the bridge forwards to it.
NOWHERE = "02:00:00:00:00:99"


def ip(*words, check=True):
    return subprocess.run(["ip", *map(str, words)], check=check, capture_output=True, text=True)


class Namespaces:
    """Hosts with addresses 10.93.X.N. X is derived from the process id, so that test processes do not share
    addresses."""

    def __init__(self):
        self.net = f"10.{93 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self.bridge = f"{PREFIX}br"
        self.names = {}
        made = ip("link", "add", "name", self.bridge, "type", "bridge", check=False)
        if made.returncode:
            pytest.skip(f"network namespaces need root and iproute2's `ip`: {made.stderr.strip()}")
        ip("address", "add", f"{self.net}.254/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")

    def host(self, node_id):
        return f"{self.net}.{node_id}"

    def add(self, node_id):
        """Creates the network namespace of a node. Returns the name of the namespace."""
        name, outside, inside = f"{PREFIX}n{node_id}", f"{PREFIX}v{node_id}", f"{PREFIX}e{node_id}"
        ip("netns", "add", name)
        self.names[node_id] = name
        ip("link", "add", "name", outside, "type", "veth", "peer", "name", inside)
        ip("link", "set", inside, "netns", name)
        ip("link", "set", outside, "master", self.bridge, "up")
        ip("-n", name, "link", "set", inside, "name", "eth0")
        ip("-n", name, "address", "add", f"{self.host(node_id)}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")
        return name

    def cut_one_way(self, source, target):
        ip(
            "-n",
            self.names[source],
            "neighbor",
            "replace",
            self.host(target),
            "lladdr",
            NOWHERE,
            "dev",
            "eth0",
            "nud",
            "permanent",
        )

    def cut(self, these, those):
        """Cuts every link between two sets of nodes in both directions."""
        for one in these:
            for other in those:
                self.cut_one_way(one, other)
                self.cut_one_way(other, one)

    def heal(self):
        for source, name in self.names.items():
            for target in self.names:
                if target != source:
                    ip("-n", name, "neighbor", "del", self.host(target), "dev", "eth0", check=False)

    def close(self):
        for node_id, name in self.names.items():
            # While a process runs in a namespace, the namespace survives the deletion of its name. The link's name
            # would then not be free for the next test.
            ip("link", "del", f"{PREFIX}v{node_id}", check=False)
            ip("netns", "del", name, check=False)
        ip("link", "del", self.bridge, check=False)


@contextlib.contextmanager
def possible_network():
    """Returns a network of namespaces, or None if this user may not create namespaces and mount disks."""
    try:
        network = Namespaces()
    except pytest.skip.Exception as missing:
        warnings.warn(f"no link is cut and no disk is full in this run: {missing}", stacklevel=1)
        yield None
        return
    try:
        yield network
    finally:
        network.close()
