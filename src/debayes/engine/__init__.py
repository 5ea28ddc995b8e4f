"""Ways to run a network fast."""

from debayes.engine.backends import Engine as Engine
from debayes.engine.selection import prepare as prepare
