"""Implement `egm.study.rivals`, with one module for each published method; two simple methods share one."""
