"""Settings for all tests: Hypothesis draws the same examples everywhere and never judges the machine's speed."""

from hypothesis import HealthCheck, settings

settings.register_profile("metromq", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("metromq")
