"""The crash test: a broker that is killed again and again under load."""
