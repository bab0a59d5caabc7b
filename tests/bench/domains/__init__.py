"""Agents' work in domains that nothing was tuned on, asked in words that nothing was tuned on."""
