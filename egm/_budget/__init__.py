"""Implement `egm.budget`: the costs of releases, the rules by which they are added up, and where they are recorded."""
