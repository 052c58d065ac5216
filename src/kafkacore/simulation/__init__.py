"""A simulator: whole nodes run on one thread, in virtual time, with a simulated disk and network. The same seed repeats
a run exactly.

Faults and clients act on the nodes, and checkers watch the nodes for broken invariants. Tests plant bugs on purpose, to
prove that the checkers find them.
"""
