"""Each stage on a target: what it asks of the graph about a batch, through the port; no Cypher."""
