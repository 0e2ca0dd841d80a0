"""Tests of metromq.broker.auth."""
