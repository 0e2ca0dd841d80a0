"""Tests of metromq.client."""
