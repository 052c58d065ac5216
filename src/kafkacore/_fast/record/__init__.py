"""Record batches: their header, their records, how they are built, scanned, validated and described."""
