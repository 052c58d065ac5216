"""One partition on disk: segments, indexes, producer state, epochs, recovery, appends and reads."""
