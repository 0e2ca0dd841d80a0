"""What the hub must know of the configuration, as plain numbers; the shell fills it in from `metromq.config`."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class HubSettings:
    """Limits and features of one broker.

    The defaults are those of `metromq.config`, where each has its reason; a test holds them equal, so that what is
    proved of a hub with defaults is proved of a broker that nobody configured.
    """

    max_packet_size_bytes: int = 1 << 20
    max_queued_messages: int = 10_000
    max_queued_bytes: int = 64 << 20
    max_outgoing_bytes: int = 1 << 20
    max_inflight: int = 100
    receive_maximum: int = 1_000
    max_topic_alias: int = 64
    max_subscriptions_per_client: int = 10_000
    max_filter_bytes_per_client: int = 4 << 20
    max_keepalive_s: int = 0  # 0: whatever the client asks
    max_session_expiry_s: int = 30 * 86_400
    max_qos: int = 2
    retain_available: bool = True
    max_retained_messages: int = 100_000
    max_retained_bytes: int = 256 << 20
    max_topic_levels: int = 128
    max_connections: int = 10_000
    max_unconnected: int = 5_000
    connect_timeout_s: float = 10.0
    max_connects_per_s: float = 1_000.0  # 0: no limit
    record_qos0: bool = False
    foreign_client_id_replaces: bool = False  # False: another user's CONNECT is refused
    memory_entries: int = 1_000  # queued messages a session holds in memory before it reads the journal
    memory_bytes: int = 1 << 20  # and how many bytes of them
