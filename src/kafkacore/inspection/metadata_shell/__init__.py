"""The metadata of a cluster as a tree of files, with the names of Apache Kafka's metadata shell (KIP-631)."""
