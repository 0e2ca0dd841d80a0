"""A city in virtual time: the very routers and nodes of the live broker on a simulated network."""
