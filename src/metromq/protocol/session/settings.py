"""What the hub must know of the configuration, as plain numbers; the shell fills it in from `metromq.config`."""

from typing import final


@final
class Settings:
    """Limits and features of one broker; the defaults are those of `metromq.config.Limits`."""

    def __init__(
        self,
        max_packet_size_bytes: int = 1 << 20,
        max_queued_messages: int = 100_000,
        max_queued_bytes: int = 256 << 20,
        max_outgoing_bytes: int = 4 << 20,
        max_inflight: int = 100,
        receive_maximum: int = 1000,
        max_topic_alias: int = 64,
        max_subscriptions_per_client: int = 10_000,
        max_keepalive_s: int = 0,
        max_session_expiry_s: int = 0xFFFFFFFF,
        max_qos: int = 2,
        retain_available: bool = True,
        max_retained_messages: int = 1_000_000,
        max_topic_levels: int = 200,
        max_connections: int = 10_000,
        connect_timeout_s: float = 10.0,
        max_connects_per_s: float = 1000.0,
        record_qos0: bool = False,
        foreign_client_id_replaces: bool = False,
        memory_entries: int = 1000,
        memory_bytes: int = 1 << 20,
    ) -> None:
        self.max_packet_size_bytes = max_packet_size_bytes
        self.max_queued_messages = max_queued_messages
        self.max_queued_bytes = max_queued_bytes
        self.max_outgoing_bytes = max_outgoing_bytes
        self.max_inflight = max_inflight
        self.receive_maximum = receive_maximum
        self.max_topic_alias = max_topic_alias
        self.max_subscriptions_per_client = max_subscriptions_per_client
        self.max_keepalive_s = max_keepalive_s  # 0: whatever the client asks
        self.max_session_expiry_s = max_session_expiry_s
        self.max_qos = max_qos
        self.retain_available = retain_available
        self.max_retained_messages = max_retained_messages
        self.max_topic_levels = max_topic_levels
        self.max_connections = max_connections
        self.connect_timeout_s = connect_timeout_s
        self.max_connects_per_s = max_connects_per_s  # 0: no limit
        self.record_qos0 = record_qos0
        self.foreign_client_id_replaces = foreign_client_id_replaces  # False: another user's CONNECT is refused
        self.memory_entries = memory_entries  # queued messages a session holds in memory before it reads the journal
        self.memory_bytes = memory_bytes  # and how many bytes of them
