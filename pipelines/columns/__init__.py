"""The columns: an index in memory, made from the graph, that questions are to be answered from.

Nobody asks them yet: what follows the graph and serves them is next (decision 18).
"""
