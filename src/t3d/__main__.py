"""`python -m t3d` is the command `t3d`."""

import sys

from t3d.cli.main import main

sys.exit(main())
