"""Statistics in, a frozen plan out: where brokers and services should run, and which topics to delegate; no I/O."""
