"""How far a message has come between brokers, and how much further it may go, so that none can run in a circle.

CLIENT    a client of this broker published it
OWNER     sent to the broker that is responsible for its topic, which distributes it
RELAY     sent to a broker that passes it on: to the brokers that the copy names, or, where it names none, to further
          relays or to whoever wants it
HANDOVER  sent by a stand-in to the broker that is at home there, which serves whoever was not served yet
FINAL     for the subscribers of the receiving broker; never sent on

From broker to broker the stage grows; only a relay may follow a relay. Every copy carries a limit, the number of links
that it may still cross, and every hop takes one off. What would go on with nothing left is dropped.
"""

from typing import Final

CLIENT: Final = 0
OWNER: Final = 1
RELAY: Final = 2
HANDOVER: Final = 3
FINAL: Final = 4
NAMES: Final = ("client", "owner", "relay", "handover", "final")

# More links than any sensible way through a city has; a message that needs more has been sent in a circle.
HOP_LIMIT: Final = 16


def may_follow(stage: int, next_stage: int) -> bool:
    return next_stage > stage or next_stage == stage == RELAY
