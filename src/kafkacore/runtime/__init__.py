"""The threads and event loops of a process, its files and its clock, real or simulated, for Python code."""
