"""The tests below belong into the virtual machine; elsewhere they are not collected."""

import os

collect_ignore = [] if os.path.exists("/opt/cloister/settings.json") else ["tests"]
