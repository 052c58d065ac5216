"""Files in memory that remember what a power cut would leave of them; `simdisk` is what Python calls."""
