"""Rooms behind `egm.adaptive`: private questions about the rows, the search, and the last round."""
