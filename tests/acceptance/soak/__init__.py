"""A deployment as users run it, under load for a while, whose processes are killed one by one.

`python -m tests.acceptance.soak --minutes 30 --seed 7` prints a table and ends with 1 when
anything was lost, doubled, leaked or away; `tests/acceptance/test_soak.py` kills each kind once.
"""
