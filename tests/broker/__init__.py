"""Tests of metromq.broker."""
