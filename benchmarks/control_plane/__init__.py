"""Measures what KIP-291 and the Kafka Controller Redesign changed, using whole brokers in ZooKeeper mode."""
