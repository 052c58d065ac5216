"""Compares three nodes of kafkacore with three of Apache Kafka: latency and CPU of replication, failover, many
partitions."""

import benchmarks.peers  # noqa: F401 - it puts tests/support on the path
