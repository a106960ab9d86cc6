"""Extend Sphinx for the book, and define its style in LaTeX."""
