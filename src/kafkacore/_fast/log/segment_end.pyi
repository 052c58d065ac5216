"""Where a closed segment ends. Native only."""
