"""Serve the paper: its chapters and the benchmarks use these modules, and no release needs them.

`claims` records the results of checks; `parameters` refuses a parameter that a chapter does not have; `tables` computes
the report's experiments, and `plots` draws them; `rivals` has the published methods; `planted` tests audits by planted
bugs; `timing` measures the times of functions. `import egm` loads none of this. `claims` and `plots` need the extra
`study`.
"""
