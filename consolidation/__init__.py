"""Stage 3: summaries, communities, forgetting. Pure; read `stage.py` first."""
