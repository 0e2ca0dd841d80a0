"""How far a message has come between brokers. A stage only grows, so no message can run in a circle.

CLIENT    a client of this broker published it
OWNER     sent to the broker that is responsible for its topic, which distributes it
HANDOVER  sent by a stand-in to the broker that is at home there, which serves whoever was not served yet
FINAL     for the subscribers of the receiving broker; never sent on
"""

from typing import Final

CLIENT: Final = 0
OWNER: Final = 1
HANDOVER: Final = 2
FINAL: Final = 3
NAMES: Final = ("client", "owner", "handover", "final")
