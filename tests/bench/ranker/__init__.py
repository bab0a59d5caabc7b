"""`make train-ranker`: the table of numbers that ranks and judges answers from stories."""
