"""Three nodes beside three nodes of Apache Kafka: replication's latency, CPU, failover and many partitions."""

import benchmarks.peers  # noqa: F401 - it puts tests/support on the path
