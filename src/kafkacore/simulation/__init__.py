"""A simulated world: whole nodes on one thread, under virtual time, repeated exactly by their seed.

Faults and clients drive it, checkers watch it, and planted bugs prove that the checkers see.
"""
