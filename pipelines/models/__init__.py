"""The models of enrichment: where their files are, and the programs that run them.

Nothing here is loaded by the API: a model costs 100 to 300 MB a process.
"""
