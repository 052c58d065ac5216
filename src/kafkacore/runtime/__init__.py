"""Threads and loops of a process, its files, its clock: the real environment and the simulated one, as Python sees them."""
