"""Read CSV, NumPy and Parquet files, for `egm.files`."""
