"""A broker in ZooKeeper mode: its registration, the requests of its controller, and the listener of KIP-291."""
