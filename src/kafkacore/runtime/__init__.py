"""Threads and loops of a process, its files, its clock: real ones and simulated ones, as Python sees them."""
