"""The asyncio shell around the protocol: doors, authentication, journal, metrics."""
