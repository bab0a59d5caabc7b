"""`make bench-peers`: a question asked of Recollect and of other memories, in one run."""
