"""The reason codes of MQTT 5, their names, which packet may carry which, and their 3.1.1 equivalents."""

from typing import Final

SUCCESS: Final = 0x00  # also "normal disconnection" and "granted QoS 0"
GRANTED_QOS_0: Final = 0x00
GRANTED_QOS_1: Final = 0x01
GRANTED_QOS_2: Final = 0x02
DISCONNECT_WITH_WILL: Final = 0x04
NO_MATCHING_SUBSCRIBERS: Final = 0x10
NO_SUBSCRIPTION_EXISTED: Final = 0x11
CONTINUE_AUTHENTICATION: Final = 0x18
REAUTHENTICATE: Final = 0x19
UNSPECIFIED_ERROR: Final = 0x80
MALFORMED_PACKET: Final = 0x81
PROTOCOL_ERROR: Final = 0x82
IMPLEMENTATION_SPECIFIC_ERROR: Final = 0x83
UNSUPPORTED_PROTOCOL_VERSION: Final = 0x84
CLIENT_IDENTIFIER_NOT_VALID: Final = 0x85
BAD_USER_NAME_OR_PASSWORD: Final = 0x86
NOT_AUTHORIZED: Final = 0x87
SERVER_UNAVAILABLE: Final = 0x88
SERVER_BUSY: Final = 0x89
BANNED: Final = 0x8A
SERVER_SHUTTING_DOWN: Final = 0x8B
BAD_AUTHENTICATION_METHOD: Final = 0x8C
KEEP_ALIVE_TIMEOUT: Final = 0x8D
SESSION_TAKEN_OVER: Final = 0x8E
TOPIC_FILTER_INVALID: Final = 0x8F
TOPIC_NAME_INVALID: Final = 0x90
PACKET_IDENTIFIER_IN_USE: Final = 0x91
PACKET_IDENTIFIER_NOT_FOUND: Final = 0x92
RECEIVE_MAXIMUM_EXCEEDED: Final = 0x93
TOPIC_ALIAS_INVALID: Final = 0x94
PACKET_TOO_LARGE: Final = 0x95
MESSAGE_RATE_TOO_HIGH: Final = 0x96
QUOTA_EXCEEDED: Final = 0x97
ADMINISTRATIVE_ACTION: Final = 0x98
PAYLOAD_FORMAT_INVALID: Final = 0x99
RETAIN_NOT_SUPPORTED: Final = 0x9A
QOS_NOT_SUPPORTED: Final = 0x9B
USE_ANOTHER_SERVER: Final = 0x9C
SERVER_MOVED: Final = 0x9D
SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0x9E
CONNECTION_RATE_EXCEEDED: Final = 0x9F
MAXIMUM_CONNECT_TIME: Final = 0xA0
SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: Final = 0xA1
WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0xA2

NAMES: Final[dict[int, str]] = {
    SUCCESS: "Success",
    GRANTED_QOS_1: "Granted QoS 1",
    GRANTED_QOS_2: "Granted QoS 2",
    DISCONNECT_WITH_WILL: "Disconnect with Will Message",
    NO_MATCHING_SUBSCRIBERS: "No matching subscribers",
    NO_SUBSCRIPTION_EXISTED: "No subscription existed",
    CONTINUE_AUTHENTICATION: "Continue authentication",
    REAUTHENTICATE: "Re-authenticate",
    UNSPECIFIED_ERROR: "Unspecified error",
    MALFORMED_PACKET: "Malformed Packet",
    PROTOCOL_ERROR: "Protocol Error",
    IMPLEMENTATION_SPECIFIC_ERROR: "Implementation specific error",
    UNSUPPORTED_PROTOCOL_VERSION: "Unsupported Protocol Version",
    CLIENT_IDENTIFIER_NOT_VALID: "Client Identifier not valid",
    BAD_USER_NAME_OR_PASSWORD: "Bad User Name or Password",
    NOT_AUTHORIZED: "Not authorized",
    SERVER_UNAVAILABLE: "Server unavailable",
    SERVER_BUSY: "Server busy",
    BANNED: "Banned",
    SERVER_SHUTTING_DOWN: "Server shutting down",
    BAD_AUTHENTICATION_METHOD: "Bad authentication method",
    KEEP_ALIVE_TIMEOUT: "Keep Alive timeout",
    SESSION_TAKEN_OVER: "Session taken over",
    TOPIC_FILTER_INVALID: "Topic Filter invalid",
    TOPIC_NAME_INVALID: "Topic Name invalid",
    PACKET_IDENTIFIER_IN_USE: "Packet Identifier in use",
    PACKET_IDENTIFIER_NOT_FOUND: "Packet Identifier not found",
    RECEIVE_MAXIMUM_EXCEEDED: "Receive Maximum exceeded",
    TOPIC_ALIAS_INVALID: "Topic Alias invalid",
    PACKET_TOO_LARGE: "Packet too large",
    MESSAGE_RATE_TOO_HIGH: "Message rate too high",
    QUOTA_EXCEEDED: "Quota exceeded",
    ADMINISTRATIVE_ACTION: "Administrative action",
    PAYLOAD_FORMAT_INVALID: "Payload format invalid",
    RETAIN_NOT_SUPPORTED: "Retain not supported",
    QOS_NOT_SUPPORTED: "QoS not supported",
    USE_ANOTHER_SERVER: "Use another server",
    SERVER_MOVED: "Server moved",
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: "Shared Subscriptions not supported",
    CONNECTION_RATE_EXCEEDED: "Connection rate exceeded",
    MAXIMUM_CONNECT_TIME: "Maximum connect time",
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: "Subscription Identifiers not supported",
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: "Wildcard Subscriptions not supported",
}

# Which packet may carry which code; a receiver treats any other as a Protocol Error.
IN_CONNACK: Final = frozenset({0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, *range(0x99, 0x9E), 0x9F})
IN_PUBACK: Final = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})  # PUBREC too
IN_PUBREL: Final = frozenset({0x00, 0x92})  # PUBCOMP too
IN_SUBACK: Final = frozenset({0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2})
IN_UNSUBACK: Final = frozenset({0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91})
IN_DISCONNECT_OF_CLIENT: Final = frozenset({0x00, 0x04, *range(0x80, 0x84), 0x90, *range(0x93, 0x9A)})
IN_DISCONNECT_OF_SERVER: Final = frozenset(
    {0x00, *range(0x80, 0x84), 0x87, 0x89, 0x8B, *range(0x8D, 0x91), *range(0x93, 0xA3)}
)
IN_AUTH_OF_CLIENT: Final = frozenset({CONTINUE_AUTHENTICATION, REAUTHENTICATE})
IN_AUTH_OF_SERVER: Final = frozenset({SUCCESS, CONTINUE_AUTHENTICATION})

_TO_311: Final[dict[int, int]] = {
    SUCCESS: 0,
    UNSUPPORTED_PROTOCOL_VERSION: 1,
    CLIENT_IDENTIFIER_NOT_VALID: 2,
    BAD_USER_NAME_OR_PASSWORD: 4,
    BAD_AUTHENTICATION_METHOD: 4,
    NOT_AUTHORIZED: 5,
    BANNED: 5,
}
_FROM_311: Final = (
    SUCCESS,
    UNSUPPORTED_PROTOCOL_VERSION,
    CLIENT_IDENTIFIER_NOT_VALID,
    SERVER_UNAVAILABLE,
    BAD_USER_NAME_OR_PASSWORD,
    NOT_AUTHORIZED,
)


def connack_code_311(reason: int) -> int:
    """The CONNACK return code (0 to 5) of MQTT 3.1.1 that says most of what the reason code says."""
    return _TO_311.get(reason, 3)  # 3: server unavailable, the only code that names no fault of the client


def reason_of_connack_311(code: int) -> int:
    """The reason code for a CONNACK return code of MQTT 3.1.1; codes above 5 are reserved and give -1."""
    return _FROM_311[code] if code < len(_FROM_311) else -1


def disconnect_code(reason: int) -> int:
    """What DISCONNECT from the server can say of a reason for which CONNACK would refuse."""
    if reason in IN_DISCONNECT_OF_SERVER:
        return reason
    return UNSPECIFIED_ERROR if reason == SERVER_UNAVAILABLE else NOT_AUTHORIZED


def name_of(reason: int) -> str:
    """A reason code as people read it."""
    return f"{NAMES.get(reason, 'Unknown reason')} (0x{reason:02X})"
