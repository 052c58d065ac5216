"""The threads and loops of a process, its files and its clock, real or simulated, as Python code uses them."""
