"""Runs a city: where its files are, the processes on this machine, and what its brokers say of themselves."""
