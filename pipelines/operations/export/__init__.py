"""Export: what the ledger and the graph hold, in forms that others read."""
