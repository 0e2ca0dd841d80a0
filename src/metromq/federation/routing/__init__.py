"""Which brokers a message must visit: one interface, one file per choice, no I/O."""
