"""Implement `egm.gx2`: parameters give a form, the form gives a contour, and the contour gives numbers."""
