"""Noise map: levels of many sensors become a map of the last averages, published retained once a second.

Topics: noise/PLACE/level with a number in decibels; it publishes noise-map with {"PLACE": average, ...}. Users get the
same as a page at NOISE_PORT, if that is set; what they get is told to the manager by SERVICE_USAGE.
"""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

from metromq.client import Client

WEIGHT = 0.2  # of a new value in the average


async def main() -> None:
    host, _, port = os.environ["MQTT_BROKER"].rpartition(":")
    levels: dict[str, float] = {}
    async with Client(host, int(port), identifier=os.environ["MQTT_CLIENT_ID"]) as client:
        for topic in os.environ["MQTT_TOPICS"].split():
            await client.subscribe(topic, qos=1)
        print("the noise map is being drawn")
        if "NOISE_PORT" in os.environ:
            await asyncio.start_server(
                lambda reader, writer: answer(reader, writer, levels), "127.0.0.1", int(os.environ["NOISE_PORT"])
            )
        drawing = asyncio.create_task(draw(client, levels))
        async for message in client.messages:
            place = str(message.topic).split("/")[1]
            with contextlib.suppress(ValueError):
                value = float(message.payload)
                levels[place] = value if place not in levels else (1 - WEIGHT) * levels[place] + WEIGHT * value
        drawing.cancel()


async def draw(client: Client, levels: dict[str, float]) -> None:
    while True:
        if levels:
            text = json.dumps({place: round(level, 1) for place, level in sorted(levels.items())})
            await client.publish("noise-map", text.encode(), qos=1, retain=True)
        await asyncio.sleep(1)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, levels: dict[str, float]) -> None:
    await reader.readuntil(b"\r\n\r\n")
    body = json.dumps(levels).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
    await writer.drain()
    writer.close()
    tell_usage(len(body))


def tell_usage(size: int) -> None:
    usage = {"device": os.environ.get("SERVICE_DEVICE", ""), "bytes": size}
    with Path(os.environ.get("SERVICE_USAGE", os.devnull)).open("a") as file:
        file.write(json.dumps(usage) + "\n")


if __name__ == "__main__":
    if missing := [name for name in ("MQTT_BROKER", "MQTT_CLIENT_ID", "MQTT_TOPICS") if name not in os.environ]:
        by_hand = "MQTT_BROKER=127.0.0.1:1883 MQTT_CLIENT_ID=noise_map MQTT_TOPICS='noise/+/level'"
        sys.exit(
            f"{', '.join(missing)} must be set. `metromq service add` does that; by hand: {by_hand} python noise_map.py"
        )
    asyncio.run(main())
