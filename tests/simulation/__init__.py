"""Seeded histories of whole deployments in memory: every fault at every moment, one thread.

A seed draws steps (`steps`), a world carries them out on the real runner, stages and store
(`world`), and at the end every graph must be what a fresh fold of the ledger makes (`properties`).
`python -m tests.simulation --seeds 5000`, or `--seed 17` for one of them with its trace.
"""
