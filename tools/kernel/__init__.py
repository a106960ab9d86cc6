"""Hold programs that run before the first cell of a chapter, in its kernel, the process that runs the cells.

`tools.execute` makes the kernel run them.
"""
