"""A Kafka Connect 4.3 worker in distributed mode. Tests control it through its REST interface."""

import json
import urllib.error
import urllib.request

from brokers import APACHE, java, need_jars
from kafkacore.runtime.ports import free_ports
from processes import Child, wait_until

RELEASE = APACHE["apache-4.3"]
START_S, PATIENCE_S = 120, 60
CONFLICT = 409


class Worker:
    """A worker process. `replicas` is the replication factor of the worker's internal topics."""

    def __init__(self, bootstrap, name, directory, replicas=1):
        need_jars(RELEASE)
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        settings = {
            "bootstrap.servers": bootstrap, "group.id": name, "listeners": self.url,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.flush.interval.ms": 200, "plugin.discovery": "service_load",
        }  # fmt: skip
        for kind in ("offset", "config", "status"):
            settings |= {f"{kind}.storage.topic": f"{name}-{kind}", f"{kind}.storage.replication.factor": replicas}
        file = directory / f"worker-{port}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = [*java(RELEASE, "256m"), "org.apache.kafka.connect.cli.ConnectDistributed", str(file)]
        self.child = Child(["setpriv", "--pdeathsig", "KILL", "--", *command], directory / f"worker-{port}.log")
        self.child.wait_ready(self.in_group, START_S, "a worker that accepts connectors")

    def ask(self, method, path, body=None):
        """Sends a request, and repeats it as long as the worker answers that its group is rebalancing."""
        answers = wait_until(lambda: self.try_to_ask(method, path, body), PATIENCE_S, f"an answer to {method} {path}")
        return answers[0]

    def try_to_ask(self, method, path, body):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return [json.loads(answer.read() or "null")]
        except urllib.error.HTTPError as error:
            if error.code != CONFLICT:
                raise
            return []

    def in_group(self):
        """Returns whether the worker has joined its group and read its configuration. Its REST interface opens earlier
        than that."""
        try:
            return bool(self.try_to_ask("GET", "/connectors", None))
        except OSError:
            return False

    def settle(self, connector, **config):
        self.ask("PUT", f"/connectors/{connector}/config", {"tasks.max": 1, **config})

    def offsets(self, connector):
        return [each["offset"] for each in self.ask("GET", f"/connectors/{connector}/offsets")["offsets"]]
