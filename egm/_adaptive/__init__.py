"""Implement `egm.adaptive`: queries about private rows, a search for center and spread that makes them, a release."""
