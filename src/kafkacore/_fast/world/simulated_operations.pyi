"""The operations of a simulated disk; native only."""
