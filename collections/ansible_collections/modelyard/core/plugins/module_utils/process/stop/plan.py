"""What to signal next, for all groups of a stop at once and ahead of time. The runner looks, asks here, signals, and looks again.

Pure. What is done with one group, phase by phase: phases.py.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process.stop import phases

Groups = Mapping[Optional[int], Sequence[phases.Member]]
Courses = Dict[Optional[int], phases.Course]


def advance_all(
    courses: Mapping[Optional[int], phases.Course], groups: Groups, now: float, limits: phases.Limits
) -> Tuple[Courses, List[phases.Step]]:
    """The next signals of all groups, and their courses after them, by instance.

    None: those of the service that belong to no known instance. They may be parts of an engine that is still being asked, so
    they are left alone until no group is, and a moment longer.
    """
    after: Courses = {}
    steps: List[phases.Step] = []
    for key in sorted(courses, key=lambda k: (k is None, k)):
        course = courses[key]
        if key is None and course.phase == phases.ASK and after and groups.get(None):
            asking = any(other.phase == phases.ASK for other in after.values())
            course, settled = (course._replace(gone_since=None), False) if asking else phases.waited(course, now, phases.SETTLE_S)
            if not settled:
                after[key] = course
                continue
        after[key], more = phases.advance(course, groups.get(key, ()), now, limits)
        steps += more
    return after, steps


class Planned(NamedTuple):
    """A signal, and after how many seconds at the latest it would be sent if nothing ended before."""

    after_s: float
    step: phases.Step


def schedule(groups: Groups, limits: phases.Limits, step_s: float = 0.5) -> List[Planned]:
    """All signals that these processes would get if none of them ended: what a stop would do at most, in order."""
    courses: Courses = {key: phases.Course() for key in groups}
    planned: List[Planned] = []
    now = 0.0
    while any(course.phase != phases.DONE for course in courses.values()):
        courses, steps = advance_all(courses, groups, now, limits)
        planned += [Planned(now, step) for step in steps]
        now += step_s
    return planned
