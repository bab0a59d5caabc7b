"""What speaks the protocols of Redis and Neo4j."""
