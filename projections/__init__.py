"""Stage 1 and the vocabulary that every folder shares. Pure: no socket, no clock, no randomness."""
