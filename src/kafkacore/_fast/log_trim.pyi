"""What takes records away: truncation at the end, deletion at the start, and the end of a log itself. Native only; `partition_handle` is what Python calls."""
