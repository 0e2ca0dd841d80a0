"""`python -m metromq.lab.storm --seeds 300`; the work is done in `command`, which other processes can import."""

import sys

from metromq.lab.storm.command import main

if __name__ == "__main__":
    sys.exit(main())
