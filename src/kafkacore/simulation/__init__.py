"""A simulated world: whole nodes run on one thread, in virtual time. The same seed repeats a run exactly.

Faults and clients act on the nodes, and checkers watch them. Planted bugs prove that the checkers work.
"""
