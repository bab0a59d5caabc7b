"""Formats of other tools as envelopes: one pure mapper each, in the table of `table.py`."""
