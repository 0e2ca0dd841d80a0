"""Tests of metromq.cli."""
