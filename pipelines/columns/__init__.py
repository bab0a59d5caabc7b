"""The columns: an index in memory, made from the graph, that questions are answered from."""
