"""Real conversations, enriched; `python -m tests.acceptance.enriched` prints what they become."""
