"""One broker's live part in a city: the host of the federation's node, its links and sessions that move."""
