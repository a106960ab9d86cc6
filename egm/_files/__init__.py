"""Read CSV, NumPy and Parquet files."""
