"""The proxy: clients connect to it as to a broker, and each packet goes to the broker that has its topic."""

from metromq.gateway.shell import Address, Proxy, ProxyOptions
from metromq.gateway.table import DelegationTable
from metromq.gateway.tunnel_end import TunnelEnd

__all__ = ["Address", "DelegationTable", "Proxy", "ProxyOptions", "TunnelEnd"]
