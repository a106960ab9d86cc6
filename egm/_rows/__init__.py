"""Clip rows, round them to integers, and add them up exactly: rows of an array, of several blocks, or of dask."""
