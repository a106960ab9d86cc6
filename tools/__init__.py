"""Make the book from its sources: execute the chapters, number their statements, and build the pages."""
