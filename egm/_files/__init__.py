"""How the kinds of files are read: CSV, NumPy and Parquet."""
