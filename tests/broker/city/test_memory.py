"""A city without journals: links carry every QoS 1 message, also those that take the short way through the broker."""

from metromq.client import Client
from tests.broker.city.cities import is_joined, memory_city, running, until
from tests.peers import play


def test_every_message_of_a_known_topic_reaches_the_peer() -> None:
    async def story() -> None:
        async with running(memory_city(), "b00", "b10") as [one, other]:
            await until(lambda: is_joined(one, "b10") and is_joined(other, "b00"))
            async with Client("127.0.0.1", other.port) as subscriber, Client("127.0.0.1", one.port) as publisher:
                await subscriber.subscribe("news/#", qos=1)
                assert one.host is not None
                node = one.host.node
                await until(lambda: bool(node.route("news/today").hops))
                for number in range(5):
                    await publisher.publish("news/today", b"%d" % number, qos=1)
                messages = aiter(subscriber.messages)
                assert [(await anext(messages)).payload for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]

    play(story())
