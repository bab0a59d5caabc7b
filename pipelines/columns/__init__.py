"""The columns: an index in memory, made from the graph, that questions are to be answered from.

`follow.Columns` loads them and follows the graph. Decision 18.
"""
