"""From a question to ranked nodes: pure ranking, and bounded walks over the graph reader."""
