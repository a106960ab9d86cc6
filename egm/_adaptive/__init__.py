"""Implement `egm.adaptive`: questions about private rows, a search for center and spread that asks them, a release."""
