"""What `verify` is made of: sums and judging for Stage 1, what Stages 2 and 3 must have made."""
