"""Read rows in blocks, bring the rows of one person together, and add up clipped rows exactly, as integers."""
