"""Hold what runs in the kernel of a chapter before its first cell; `tools.execute` starts it."""
