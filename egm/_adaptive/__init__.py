"""Implement `egm.adaptive`: the private questions about rows, the search that asks them, and the final release."""
