"""What turns the sources into the book: execution of chapters, numbering, the build itself."""
