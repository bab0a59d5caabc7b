"""What verify asks of the graph."""
