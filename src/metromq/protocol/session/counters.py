"""What a broker counts; `$SYS` topics, /metrics and telemetry read it."""

from typing import final


@final
class BrokerCounters:
    def __init__(self) -> None:
        self.messages_received = 0  # PUBLISH packets from clients
        self.messages_sent = 0  # PUBLISH packets to clients
        self.bytes_received = 0
        self.bytes_sent = 0
        self.packets_received = 0
        self.packets_sent = 0
        self.publish_bytes_received = 0
        self.publish_bytes_sent = 0
        self.dropped = 0  # messages not delivered: output or queue full, too large, expired
        self.expired = 0
        self.refused = 0  # messages not accepted: no permission, disk full
        self.retained_dropped = 0  # messages with RETAIN that were delivered, but not kept: there was no room
        self.connects = 0
        self.disconnects = 0
        self.clients_maximum = 0
        self.violations = 0  # connections closed for a breach of the standard
        self.subscribes = 0
        self.unsubscribes = 0
