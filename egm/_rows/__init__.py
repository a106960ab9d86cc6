"""Round rows to integers and add them up exactly, whether they are in an array, in blocks or in a dask array."""
