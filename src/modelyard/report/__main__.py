"""`python -m modelyard.report RUN.json`."""

import argparse
import sys

from modelyard.report import command

parser = argparse.ArgumentParser(prog="python -m modelyard.report", description=command.__doc__)
command.add_arguments(parser)
sys.exit(command.run(parser.parse_args()))
