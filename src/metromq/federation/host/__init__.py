"""One broker's part in the city, whatever drives it: the live broker and the simulator run the same host; no I/O."""

from metromq.federation.host.host import Host, Reporting

__all__ = [
    "Host",
    "Reporting",
]
