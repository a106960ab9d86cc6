"""Compute the functions of `egm.gx2`, which describe a weighted sum of chi-square variables.

`form` checks and normalizes the parameters, and `clusters` gathers many weights in clusters. `contour` integrates along
a contour in the complex plane, by functions of `kernel`, which are compiled or, for a few tails, run by Python
(`loops`). From such integrals `tails`, `quantiles`, `derivatives` and `clipping` compute their results, and `errors`
the estimated errors of quantiles. `moments` needs no integrals, and `frozen` offers the functions as methods of an
object. `certify` proves between which two doubles a result lies: `choice` chooses its contours, `enclosed` bounds the
errors of its integrals, and `balls` holds its parameters as intervals.
"""
