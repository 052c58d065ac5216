"""Reads the metrics pages of the nodes in a `ProcessCluster`."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from kafkacore.runtime.ports import free_ports


def give_pages(cluster):
    """Configures a metrics page for every node of a cluster that has not been started yet."""
    cluster.pages = dict(zip(cluster.members, free_ports(len(cluster.members)), strict=True))
    for node_id, member in cluster.members.items():
        text = member.properties.read_text()
        member.properties.write_text(text.replace("metrics.port=-1\n", f"metrics.port={cluster.pages[node_id]}\n"))


def page(cluster, node_id):
    """Returns the values of a node's metrics by name and by the label `topic`. Adds up the values of all partitions or
    fetchers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{cluster.pages[node_id]}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        found = {}
        for sample in (sample for family in families for sample in family.samples):
            key = sample.name, sample.labels.get("topic")
            found[key] = found.get(key, 0) + sample.value
    return found
