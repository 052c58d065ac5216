"""The log of one partition on disk: segments, indexes, producer state, leader epochs, recovery, appends and reads."""
