"""The command line of chatlane with a router that purges no stream early.

Usage: as `python -m chatlane`. A stream that is full then stays full. The product has no such switch.
"""

from datetime import timedelta

from chatlane.cli import main
from chatlane.ingest import log_trimmer

if __name__ == "__main__":
    setattr(log_trimmer, "_EVERY", timedelta(days=1))  # noqa: B010 - a constant
    main()
