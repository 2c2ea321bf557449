"""`python -m t3d` is the command `t3d`."""

import sys

from t3d.base.ending import leave
from t3d.cli.main import main

sys.argv[0] = "t3d"  # what a run records as its command
leave(main())
