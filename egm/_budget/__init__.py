"""What a budget counts and where it keeps it: the costs and their rules, and the journal."""
