"""Cities that come with the package, one per routing choice."""
