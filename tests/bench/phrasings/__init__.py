"""Ways to ask that people wrote down, and what learns from them."""
