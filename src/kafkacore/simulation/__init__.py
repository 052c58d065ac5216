"""A simulated world: whole nodes on one thread, in virtual time. The same seed repeats a run exactly.

Faults and clients drive it, checkers watch it, and planted bugs prove that the checkers work.
"""
