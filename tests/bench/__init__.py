"""Tests of the bench: that it measures what it says, and judges by the targets."""
