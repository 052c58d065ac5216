"""Apache Kafka's own command-line tools. A single Java process runs many of them, one after another: see
ci/peers/java."""

import json
import subprocess
from dataclasses import dataclass

from brokers import APACHE, java

MAIN = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "java-client": "kafkacore.peers.JavaClient",
    "streams-word-count": "kafkacore.peers.WordCount",
    "java-log-dirs": "kafkacore.peers.LogDirs",
    "java-writes": "kafkacore.peers.Writes",
    "java-reads": "kafkacore.peers.Reads",
    "java-administration": "kafkacore.peers.Administration",
}
MAIN_3_9 = {
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",  # 4.0 ships none
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-acls": "kafka.admin.AclCommand",
}


@dataclass(frozen=True)
class Outcome:
    """The output and the exit status of a tool."""

    exit: int
    out: str
    err: str

    @property
    def lines(self):
        return self.out.splitlines()


class KafkaTools:
    """A Java process with the tools of one release. At any time, only one thread may call `run`."""

    def __init__(self, name):
        self.name, self.release = name, APACHE[name]
        command = [*java(self.release, "256m"), "kafkacore.peers.Runner"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
        )

    def main(self, tool):
        """Returns the name of the class that implements a tool in this release."""
        return (MAIN | MAIN_3_9 if self.release.startswith("3.9") else MAIN)[tool]

    def attempt(self, tool, *args, stdin=""):
        """Runs a tool and returns its Outcome. Accepts any exit status."""
        request = {"main": self.main(tool), "args": [str(arg) for arg in args], "stdin": stdin}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the Java process for the tools of {self.name} ended while it ran {tool}")
        return Outcome(**json.loads(answer))

    def run(self, tool, *args, stdin=""):
        """Runs a tool that must exit with status 0."""
        outcome = self.attempt(tool, *args, stdin=stdin)
        assert outcome.exit == 0, f"{tool} {args}: exit {outcome.exit}\n{outcome.out}\n{outcome.err}"
        return outcome

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:  # a forked process still holds the write end of its input
            self.process.kill()
            self.process.wait()
