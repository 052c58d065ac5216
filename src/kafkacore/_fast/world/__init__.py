"""The world of a node: clock, disk and network as tables of function pointers, real and simulated."""
