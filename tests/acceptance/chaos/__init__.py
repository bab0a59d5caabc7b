"""Seeded chaos on real services: faults, and the proof that nothing was lost or doubled.

`python -m tests.acceptance.chaos --faults 1000` runs as many as there is patience for, the test
`tests/acceptance/test_chaos.py` a few dozen.
"""
