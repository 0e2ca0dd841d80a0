"""Many brokers as one: routing, links and coordination."""
