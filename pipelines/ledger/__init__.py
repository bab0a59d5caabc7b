"""The ledger in Redis: the only copy of what agents did. Read `ledger.py` first."""
