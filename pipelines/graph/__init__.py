"""The graph: the one room that speaks Cypher."""
