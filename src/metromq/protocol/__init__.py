"""MQTT itself: bytes, topics and sessions, without I/O."""
