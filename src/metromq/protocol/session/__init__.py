"""The state of clients: sessions, connections and the hub that joins them."""

from metromq.protocol.session import access, layout, records, store
from metromq.protocol.session.access import Access, AccessDecision, Peer
from metromq.protocol.session.backlog import SENT, Backlog, Entry, LinkBacklog, sequence_of
from metromq.protocol.session.commits import Waiter
from metromq.protocol.session.connection import Connection
from metromq.protocol.session.counters import BrokerCounters
from metromq.protocol.session.federation import Entitled, Federation, LinkCopy, PeerEar
from metromq.protocol.session.handshake import FOREIGN, LINK_OFFER, LINK_PREFIX
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.hub_recovery import Snapshot, recover
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.log import Log
from metromq.protocol.session.message import KIND_LINK, KIND_PUBLISH, KIND_REPLAY, KIND_WILL, Message
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.newcomers import Newcomer, Newcomers
from metromq.protocol.session.output import ClientOutput, Flusher, LinkOutput, Output
from metromq.protocol.session.records import decode_message
from metromq.protocol.session.replay_desk import Asker, Refusal, ReplayDesk
from metromq.protocol.session.replays import LiveGate
from metromq.protocol.session.routes import RemoteCheck
from metromq.protocol.session.seen_ids import SeenIds, unpack_seen
from metromq.protocol.session.selecting import Replayed, Selection, local_time_us, replayed
from metromq.protocol.session.session import Session
from metromq.protocol.session.shares import is_share_note, note_limit, share_of, with_limit
from metromq.protocol.session.topic_counts import DELAY_BUCKETS, TopicCount

__all__ = [
    "DELAY_BUCKETS",
    "FOREIGN",
    "KIND_LINK",
    "KIND_PUBLISH",
    "KIND_REPLAY",
    "KIND_WILL",
    "LINK_OFFER",
    "LINK_PREFIX",
    "SENT",
    "Access",
    "AccessDecision",
    "Asker",
    "Backlog",
    "BrokerCounters",
    "ClientOutput",
    "Connection",
    "Entitled",
    "Entry",
    "Federation",
    "Flusher",
    "Hub",
    "HubSettings",
    "LinkBacklog",
    "LinkCopy",
    "LinkOutput",
    "LiveGate",
    "Log",
    "Message",
    "NetworkConnection",
    "Newcomer",
    "Newcomers",
    "Output",
    "Peer",
    "PeerEar",
    "Refusal",
    "RemoteCheck",
    "ReplayDesk",
    "Replayed",
    "SeenIds",
    "Selection",
    "Session",
    "Snapshot",
    "TopicCount",
    "Waiter",
    "access",
    "decode_message",
    "is_share_note",
    "layout",
    "local_time_us",
    "note_limit",
    "records",
    "recover",
    "replayed",
    "sequence_of",
    "share_of",
    "store",
    "unpack_seen",
    "with_limit",
]
