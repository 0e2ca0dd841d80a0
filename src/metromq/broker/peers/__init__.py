"""One broker's live part in a city: runs the federation's host, and brings TCP and TLS to its links."""

from metromq.broker.peers.coordinating import coordination_worker
from metromq.broker.peers.member import CityMember

__all__ = ["CityMember", "coordination_worker"]
