"""Hold the Sphinx extensions of the book, and its style in LaTeX."""
