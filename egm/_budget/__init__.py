"""Implement `egm.budget`: the costs of releases, the rules that add them up, and the journal."""
