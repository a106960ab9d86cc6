"""The parts of the command line, `egm.cli`."""
