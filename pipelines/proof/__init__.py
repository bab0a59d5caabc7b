"""The proof: the ledger folded again and compared with the graph, and repair of what differs."""
