"""The cluster's metadata as a tree of files, under the names of Apache Kafka's metadata shell (KIP-631)."""
