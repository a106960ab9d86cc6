"""Compute the functions of `egm.gx2`, which describe a weighted sum of chi-square variables.

`form` normalizes the parameters, and `contour` integrates along a contour in the complex plane. With these
integrals `tails`, `quantiles`, `moments` and `clipping` compute the results that a user sees.
"""
