"""Sentences that lay down a wish, and others, that people wrote down; and what learns from them."""
