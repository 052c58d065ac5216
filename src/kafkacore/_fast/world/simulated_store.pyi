"""Files in memory that remember what a power cut would leave of them; `simulated_disk` is what Python calls."""
