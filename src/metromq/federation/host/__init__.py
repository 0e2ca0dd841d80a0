"""One broker's part in the city, whatever drives it: the live broker and the simulator run the same host; no I/O."""

from metromq.federation.host.host import Host, Reporting
from metromq.federation.host.last_wills import WILL_SUFFIX
from metromq.federation.host.leaving import DRAINED, GONE

__all__ = [
    "DRAINED",
    "GONE",
    "WILL_SUFFIX",
    "Host",
    "Reporting",
]
