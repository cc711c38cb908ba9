"""Run the cluster: `python -m chatlane_devkit.cluster`."""

import os
import sys

from chatlane_devkit.cluster.cluster import ROOT, main

os.chdir(ROOT)
sys.exit(main())
