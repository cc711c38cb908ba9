"""Makes `python -m chatlane` the same as `chatlane`."""

from chatlane.cli import main

main()
