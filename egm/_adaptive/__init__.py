"""Implement `egm.adaptive`: queries about private rows, a search for their center and spread, and the release."""
