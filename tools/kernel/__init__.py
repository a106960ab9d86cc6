"""Hold the programs that the kernel of a chapter (notebook) runs before its first cell.

`tools.execute` makes the kernel run them.
"""
