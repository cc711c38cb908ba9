"""Become a program for Node.js: `python node_program.py SCRIPT ARGUMENT...`; the process id stays."""

import os
import sys

os.execvp("node", ["node", *sys.argv[1:]])  # noqa: S606, S607 - the Node.js of the machine
