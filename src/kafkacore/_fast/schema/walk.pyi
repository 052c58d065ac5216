"""No Python face: messages, views and columns drive the walker."""
