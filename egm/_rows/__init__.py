"""Sum rows exactly, as integers: norms, the lattice, the compiled loop, blocks, and dask arrays."""
