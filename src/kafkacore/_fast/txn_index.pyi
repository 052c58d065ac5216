"""The transaction index beside a segment: which transactions in it were aborted (KIP-98; TransactionIndex, AbortedTxn). Native only; `partition_handle` is what Python calls."""
