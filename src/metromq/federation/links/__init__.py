"""What brokers say to each other: frames, batches, proofs of the secret, memory of what was received; no I/O."""

from metromq.federation.links import auth, joining
from metromq.federation.links.link import Link
from metromq.federation.links.link_access import LinkAccess, LinkExchange
from metromq.federation.links.mqtt_transport import CONNECT_TIMEOUT_S, Line, LinkCredentials, MqttTransport
from metromq.federation.links.routing_slip import is_slip

__all__ = [
    "CONNECT_TIMEOUT_S",
    "Line",
    "Link",
    "LinkAccess",
    "LinkCredentials",
    "LinkExchange",
    "MqttTransport",
    "auth",
    "is_slip",
    "joining",
]
