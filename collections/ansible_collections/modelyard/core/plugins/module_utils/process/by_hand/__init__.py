"""Start, look and stop without Ansible, as the service's user on its host: what modelyard.pyz does.

The scripts in a service's folder call it. It has the same rules as the modules, because it is made of the same files.
"""
