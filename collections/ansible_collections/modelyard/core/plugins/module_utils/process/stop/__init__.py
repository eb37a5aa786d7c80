"""The guarded stop: claims and segments know what is a service's, plan decides, run acts, cards and admin look after."""

from ansible_collections.modelyard.core.plugins.module_utils.process.stop.claims import claim as claim
from ansible_collections.modelyard.core.plugins.module_utils.process.stop.segments import record as record_segments

__all__ = ["claim", "record_segments"]
