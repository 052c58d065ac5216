"""A simulated world: whole nodes on one thread, under virtual time, repeated exactly by their seed."""
