"""Extensions of Sphinx for the book, and its looks in LaTeX."""
