"""What readers and passes ask of the graph, one module a subject."""
