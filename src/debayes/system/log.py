"""Logging: what was decided and why, for `-v` and for host programs that listen to the logger "debayes"."""

import logging

log = logging.getLogger("debayes")
