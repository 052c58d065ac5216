"""KRaft (KIP-595, KIP-630, KIP-853, KIP-996): a core that does no I/O, the log and the snapshots that the core needs,
and the driver that runs the core."""
