"""`python -m vllm_eagle3_patches` is the command `vllm-eagle3-patch`."""

import sys

from vllm_eagle3_patches.cli.main import main

sys.exit(main())
