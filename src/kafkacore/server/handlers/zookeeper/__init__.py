"""Handlers of a broker in ZooKeeper mode."""
