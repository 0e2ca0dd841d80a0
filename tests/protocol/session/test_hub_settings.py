"""A hub with defaults has the limits of a broker that nobody configured."""

from dataclasses import fields

from metromq.broker.broker import settings_of
from metromq.config import Auth, Config, JournalConfig, Limits
from metromq.protocol.session.hub_settings import HubSettings

# What a broker's owner cannot set: how a session uses memory, not what a client may do.
INNER = {"memory_entries", "memory_bytes"}


def test_one_set_of_defaults() -> None:
    assert settings_of(Config()) == HubSettings()


def test_every_setting_comes_from_the_configuration() -> None:
    """The test above proves nothing about a setting that is not passed on."""
    changed: dict[str, object] = {}
    for field in fields(Limits):
        value = getattr(Limits(), field.name)
        changed[field.name] = not value if isinstance(value, bool) else value + 1
    changed["max_qos"] = 1
    config = Config(
        limits=Limits(**changed),  # type: ignore[arg-type]
        journal=JournalConfig(record_qos0=True),
        auth=Auth(foreign_client_id="new-session"),
    )
    got = settings_of(config)
    same = {
        field.name for field in fields(HubSettings) if getattr(got, field.name) == getattr(HubSettings(), field.name)
    }
    assert same == INNER
