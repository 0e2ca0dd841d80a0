"""Topic names, filters, the matching tree, retained messages and Z-order areas."""
