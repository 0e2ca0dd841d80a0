"""MetroMQ: many small MQTT brokers at the edge of a city, working as one."""

__version__ = "0.1.0"
