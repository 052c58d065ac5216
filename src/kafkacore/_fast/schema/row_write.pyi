"""No Python face: `columns` writes rows."""
