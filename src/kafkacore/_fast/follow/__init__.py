"""The follower's side of replication: fetches from other brokers, and performs the appends and truncations that their
responses require."""
