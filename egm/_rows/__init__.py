"""How rows become a sum of integers: their norms, the lattice, the compiled loop, the blocks, and dask."""
