#!/usr/bin/python
"""Module: one look at a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: survey_host
short_description: Look at a host, its runtimes, models, services and ports, in one round trip
description:
  - Reads only. Needs no root; what this user may not read is said in the result and not guessed.
options:
  home: {description: The project's folder on the host., type: path, required: true}
  runtimes: {description: Runtime folders to look into., type: list, elements: path, default: []}
  runtimes_dir: {description: Where runtimes are made., type: path, required: true}
  locks: {description: Name and digest of the locks whose runtimes are wanted., type: dict, default: {}}
  models: {description: Model folders to look into., type: list, elements: path, default: []}
  services: {description: Names of the services that are wanted., type: list, elements: str, default: []}
  ports: {description: Ports that are wanted., type: list, elements: int, default: []}
  python: {description: Interpreter for new runtimes; empty for the module's own., type: str, default: ""}
  backends: {description: What to know about each kind of card; see plan/data/backends.yml., type: dict, default: {}}
  deployed:
    description: Look also at what deploys have left in the home (manifests, rendered files, versions of what is installed).
    type: bool
    default: false
  supervisors: {description: "Names of the sessions that are wanted, by kind of supervisor.", type: dict, default: {}}
  wheelhouse: {description: Folder of wheelhouses to look into., type: str, default: ""}
  vendor_wheels: {description: Folder of a vendor's wheels to look into., type: str, default: ""}
  libraries: {description: Shared libraries that the wheels of runtimes load., type: list, elements: str, default: []}
  library_folders: {description: Folders that services search for them., type: list, elements: str, default: []}
  programs: {description: Programs to look for in the folders of the system., type: list, elements: str, default: []}
  sysroot: {description: The kernel's files about cards are read below it. For tests., type: str, default: /}
author: [Modelyard]
"""

EXAMPLES = r"""
# By its action plugin, which makes the arguments above from what the inventory wants.
- name: Look at the host
  modelyard.core.survey_host:
    intent: "{{ modelyard_intent }}"
"""

RETURN = r"""
survey: {description: What was seen; see module_utils/survey/host.py., type: dict, returned: success}
"""

import gc

# Before the other files are compiled: the process lives for a moment and leaves no garbage that matters.
gc.disable()

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelyard.core.plugins.module_utils.plan.runtime_id import runtime_id
from ansible_collections.modelyard.core.plugins.module_utils.survey import host, runtimes


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "runtimes": {"type": "list", "elements": "path", "default": []},
            "runtimes_dir": {"type": "path", "required": True},
            "locks": {"type": "dict", "default": {}},
            "models": {"type": "list", "elements": "path", "default": []},
            "services": {"type": "list", "elements": "str", "default": []},
            "ports": {"type": "list", "elements": "int", "default": []},
            "python": {"type": "str", "default": ""},
            "backends": {"type": "dict", "default": {}},
            "deployed": {"type": "bool", "default": False},
            "supervisors": {"type": "dict", "default": {}},
            "wheelhouse": {"type": "str", "default": ""},
            "vendor_wheels": {"type": "str", "default": ""},
            "libraries": {"type": "list", "elements": "str", "default": []},
            "library_folders": {"type": "list", "elements": "str", "default": []},
            "programs": {"type": "list", "elements": "str", "default": []},
            "sysroot": {"type": "str", "default": "/"},
        },
        supports_check_mode=True,
    )
    args = module.params
    version = runtimes.python(args["python"])["version"]
    wanted = [f"{args['runtimes_dir']}/{runtime_id(name, digest, version)}" for name, digest in args["locks"].items()]
    request = host.Request(
        home=args["home"],
        runtimes=wanted + args["runtimes"],
        models=args["models"],
        ports=args["ports"],
        python=args["python"],
        services=args["services"],
        runtimes_dir=args["runtimes_dir"],
        backends=args["backends"],
        sysroot=args["sysroot"],
        deployed=args["deployed"],
        supervisors=args["supervisors"],
        programs=args["programs"],
        wheelhouse=args["wheelhouse"],
        vendor_wheels=args["vendor_wheels"],
        libraries=args["libraries"],
        library_folders=args["library_folders"],
    )
    # Without the arguments: the table of the backends would come back from every host.
    module.exit_json(changed=False, survey=host.look(request), invocation={})


if __name__ == "__main__":
    main()
