"""Make the book from its sources: execute the notebooks, number theorems and equations, and build the pages."""
