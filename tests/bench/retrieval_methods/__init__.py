"""Which retrieval method answers which intent best: questions over tau-bench with labelled answers.

`python -m tests.bench.retrieval_methods` asks them over HTTP and prints a table.
"""
