"""Property tests judge promises and not the machine's speed; the same examples each time, so that a failure is a change."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "unit", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unit")
