"""Implement `egm.study.plots`.

`base` has the style, with which `curves`, `areas` and `texts` draw; `scales` is for axes.
"""
