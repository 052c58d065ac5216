"""What a node lives in: clock, disk, network and randomness as tables of function pointers, real and simulated."""
