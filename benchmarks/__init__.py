"""Measure accuracy and time of egm.gx2 and of other programs on this machine, in one run: `make bench`."""
