"""Air-quality alarm: raises an alarm when a place is above the limit three times in a row, and ends it below.

Topics: air/PLACE/pm25 with micrograms per cubic metre; it publishes alarm/air/PLACE, retained: "on" or "off".
LIMIT is 50 unless the environment says otherwise. This one uses paho, as any program may.
"""

import os
import sys
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

LIMIT = float(os.environ.get("LIMIT", "50"))
IN_A_ROW = 3


class Alarm:
    def __init__(self) -> None:
        self._above: dict[str, int] = {}
        self._on: set[str] = set()

    def message(self, client: Any, data: Any, message: Any) -> None:
        place = message.topic.split("/")[1]
        try:
            value = float(message.payload)
        except ValueError:
            return
        self._above[place] = self._above.get(place, 0) + 1 if value > LIMIT else 0
        if self._above[place] >= IN_A_ROW and place not in self._on:
            self._on.add(place)
            client.publish(f"alarm/air/{place}", "on", 1, True)
        elif not self._above[place] and place in self._on:
            self._on.discard(place)
            client.publish(f"alarm/air/{place}", "off", 1, True)


def connected(client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
    for topic in os.environ["MQTT_TOPICS"].split():
        client.subscribe(topic, 1)
    print("watching the air")


def main() -> None:
    host, _, port = os.environ["MQTT_BROKER"].rpartition(":")
    client = paho.Client(CallbackAPIVersion.VERSION2, os.environ["MQTT_CLIENT_ID"], protocol=paho.MQTTv5)
    client.on_connect = connected
    client.on_message = Alarm().message
    client.connect(host, int(port))
    client.loop_forever()


if __name__ == "__main__":
    if missing := [name for name in ("MQTT_BROKER", "MQTT_CLIENT_ID", "MQTT_TOPICS") if name not in os.environ]:
        by_hand = "MQTT_BROKER=127.0.0.1:1883 MQTT_CLIENT_ID=air_alarm MQTT_TOPICS='air/#'"
        sys.exit(
            f"{', '.join(missing)} must be set. `metromq service add` does that; by hand: {by_hand} python air_alarm.py"
        )
    main()
