"""The wing of the paper: what its chapters and the benchmarks need, and no release does.

`claims` records what a check found; `parameters` refuses a parameter that a chapter does not have; `tables` computes
the report's experiments, and `plots` draws them; `rivals` has the published methods; `planted` holds the mechanisms
against bugs; `timing` takes the times of several functions by turns. `import egm` loads none of this. `claims` and
`plots` need the extra `study`.
"""
