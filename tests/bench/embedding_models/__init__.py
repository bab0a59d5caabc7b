"""Which embedding model finds most for its processor time.

`python -m tests.bench.embedding_models` fetches the models from Maven and prints the comparison.
"""
