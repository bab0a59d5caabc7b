"""What each stage asks of the graph about a batch, through the port; no Cypher."""
