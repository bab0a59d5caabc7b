"""Real conversations, consolidated: what is worth remembering of them, and what leaves."""
