"""The environment of a node: its clock, disk and network as tables of function pointers, either real or simulated."""
