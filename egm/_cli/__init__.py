"""Implement the parts of the command line, `egm.cli`."""
