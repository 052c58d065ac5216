"""APIs of a controller's listeners."""
