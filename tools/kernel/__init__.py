"""Hold programs that the kernel of a chapter, the process that runs the notebook's cells, runs before the first cell.

`tools.execute` makes the kernel run them.
"""
