"""Adapters of the Python client with the real frameworks, in an environment of their own.

`tests/integration/test_frameworks.py` runs these against an API that it has started; so does
`make test-adapters`, which checks the adapters' types there, too.
"""
