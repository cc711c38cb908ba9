"""Run `chatlane` as `python -m chatlane`."""

from chatlane.cli import main

main()
