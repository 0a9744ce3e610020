"""The command `python -m bench.published`."""

import sys

from bench.published.documents import main

sys.exit(main())
