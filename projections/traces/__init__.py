"""Spans of calls of models and tools become envelopes: pure, whoever brings them."""
