"""Implement `egm.gx2` in four steps: parameters, normalized parameters (a "form"), contour of integration, results."""
