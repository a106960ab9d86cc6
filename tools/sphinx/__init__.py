"""Extend Sphinx for the book, and define its looks in LaTeX."""
