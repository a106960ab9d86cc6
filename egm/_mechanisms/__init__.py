"""Rooms behind `egm.mechanisms`, one for each mechanism."""
