"""Measure accuracy and time of egm and of other programs on this machine, in one run: `make bench`."""
