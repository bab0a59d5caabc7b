"""Passes of consolidation: what decides. Read `run.py` first."""
