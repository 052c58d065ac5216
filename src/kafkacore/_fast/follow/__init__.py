"""The follower's side of replication: fetches from other brokers, and the appends and truncations that follow from the
answers."""
