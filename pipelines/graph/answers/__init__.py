"""The questions of `reads`, answered through the port's primitives where there is no Cypher."""
