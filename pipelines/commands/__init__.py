"""The commands of `recollect`, one module a group, each thin over a function elsewhere."""
