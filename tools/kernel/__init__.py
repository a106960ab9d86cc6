"""What runs in the kernel of a chapter before its first cell, wired by `tools.execute`."""
