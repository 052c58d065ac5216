"""Creates topic ids for topics without an id, for a broker in ZooKeeper mode."""

from kafkacore._fast.base.made_ids import is_made, made_id, shown

__all__ = ["is_made", "made_id", "shown"]
