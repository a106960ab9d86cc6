"""Compute the functions of `egm.gx2`, which describe a weighted sum of chi-square variables.

`form` checks and normalizes the parameters. `contour` integrates along a contour in the complex plane, by the compiled
loops of `kernel`. From such integrals `tails`, `quantiles`, `derivatives` and `clipping` compute their results.
`moments` needs no integrals, and `frozen` offers the functions as methods of an object. `certify` proves between which
two doubles a result lies, with the help of `choice`, `enclosed` and `balls`.
"""
