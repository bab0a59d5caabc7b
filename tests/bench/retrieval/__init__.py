"""How well questions about long conversations are answered, over HTTP, against labelled evidence.

`python -m tests.bench.retrieval` (or `make bench-retrieval`) ingests LoCoMo's conversations, waits
until they are enriched, asks every question by each method and prints the scorer's tables.
"""
