"""What `make bench` prints: accuracy and time of egm.gx2 beside other programs, on this machine, in one run."""
