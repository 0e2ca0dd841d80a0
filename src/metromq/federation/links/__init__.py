"""What brokers say to each other: frames, batches, proofs of the secret, memory of what was received; no I/O."""
