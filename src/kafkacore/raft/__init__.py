"""KRaft (KIP-595, KIP-630, KIP-853, KIP-996): the core, which is a state machine without I/O; the log and the snapshots
that the core needs; and the driver, which runs the core on an event loop."""
