"""Implement `egm.adaptive`: private questions about the rows, the search by such questions, and the final release."""
