"""Files in memory that remember which of their bytes and names would survive a power cut; `simulated_disk` is what
Python calls."""
