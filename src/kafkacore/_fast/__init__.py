"""What runs without the GIL. Each module has a `.pxd` (the contract) and a Python face (what tests drive)."""
