"""An asyncio MQTT client on the same wire code as the broker."""
