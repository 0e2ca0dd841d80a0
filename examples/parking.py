"""Parking occupancy: every space says "taken" or "free"; the service publishes how many are free in each car park.

Topics: parking/CARPARK/SPACE, retained by the sensors; it publishes parking-free/CARPARK, retained, when that changes.
"""

import asyncio
import os
import sys

from metromq.client import Client


async def main() -> None:
    host, _, port = os.environ["MQTT_BROKER"].rpartition(":")
    taken: dict[str, dict[str, bool]] = {}
    async with Client(host, int(port), identifier=os.environ["MQTT_CLIENT_ID"]) as client:
        for topic in os.environ["MQTT_TOPICS"].split():
            await client.subscribe(topic, qos=1)
        print("counting free spaces")
        async for message in client.messages:
            levels = str(message.topic).split("/")
            if len(levels) != 3:
                continue
            _, park, space = levels
            spaces = taken.setdefault(park, {})
            before = sum(not one for one in spaces.values()) if space in spaces else None
            spaces[space] = message.payload == b"taken"
            free = sum(not one for one in spaces.values())
            if free != before:
                await client.publish(f"parking-free/{park}", str(free).encode(), qos=1, retain=True)


if __name__ == "__main__":
    if missing := [name for name in ("MQTT_BROKER", "MQTT_CLIENT_ID", "MQTT_TOPICS") if name not in os.environ]:
        by_hand = "MQTT_BROKER=127.0.0.1:1883 MQTT_CLIENT_ID=parking MQTT_TOPICS='parking/#'"
        sys.exit(
            f"{', '.join(missing)} must be set. `metromq service add` does that; by hand: {by_hand} python parking.py"
        )
    asyncio.run(main())
