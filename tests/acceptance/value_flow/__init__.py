"""Value flow on real conversations: labels made apart from the rule, then precision and recall."""
