"""The read side and ingest: an HTTP service over the ledger and the graph."""
