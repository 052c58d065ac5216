"""Record batches: header, records, building, scanning, validation and description."""
