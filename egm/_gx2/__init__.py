"""Rooms behind `egm.gx2`: from the parameters to a form, from a form to a contour, from a contour to numbers."""
