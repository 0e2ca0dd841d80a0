"""The storm: histories of clients and faults by seed, played on whole brokers, judged by the contract alone."""
