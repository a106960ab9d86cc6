"""Turn the sources into the book: execute the chapters, number their statements, build the pages."""
