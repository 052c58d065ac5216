"""APIs of a broker's listeners."""
