"""Starts three nodes of the kind that --peer names. Each is a broker and a controller: `with three_nodes(config, path)
as c`."""

from contextlib import closing, contextmanager

from brokers import APACHE, need_jars
from kafka_tools import KafkaTools
from quorums import OURS
from replicated import ReplicatedCluster

IDS = (1, 2, 3)
DEFAULT_TOOLS = "apache-4.3"


@contextmanager
def three_nodes(config, path, settings):
    kind = config.getoption("--peer")
    release = APACHE.get(kind, APACHE[DEFAULT_TOOLS])
    need_jars(release)
    kind = OURS if kind == "kafkacore" else kind
    with closing(KafkaTools(kind if kind in APACHE else DEFAULT_TOOLS)) as tools:
        cluster = ReplicatedCluster(path, combined=dict.fromkeys(IDS, kind), tools={kind: tools}, settings=settings)
        try:
            yield cluster.start(".".join(release.split(".")[:2]))
        finally:
            cluster.close()
