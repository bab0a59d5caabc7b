"""Stage 2, pure: from bare events to text, keywords, entities, causes and facts."""
