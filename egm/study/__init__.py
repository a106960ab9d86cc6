"""Provide what the chapters of the book and the benchmarks need, but no private release needs.

`claims` records the results of checks; `parameters` checks the parameters with which a chapter is run; `tables`
computes the tables of Poulsen's report, and `plots` draws figures; `rivals` has the published methods that are compared
with egm; `planted` tests audits by mechanisms with known bugs; `timing` measures the times of functions. `import egm`
loads none of these modules. `claims` and `plots` need the extra `study`.
"""
