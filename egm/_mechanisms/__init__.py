"""Implement `egm.mechanisms`, with one module for each mechanism."""
