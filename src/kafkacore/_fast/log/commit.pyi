"""The group commit of logs; native only."""
