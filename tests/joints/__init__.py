"""Joints: several rooms at once with everything real; the observer knows only what clients sent and got."""
