"""Which build is tested: the plain sources, or the package whose hot modules are compiled."""

import pytest

from metromq.protocol.wire import decoding

IS_COMPILED = not str(decoding.__file__).endswith(".py")

# For tests that plant a bug in a compiled class, or look at its calls; `make plain` runs them.
plain_only = pytest.mark.skipif(IS_COMPILED, reason="compiled classes cannot be changed, nor their calls seen")
