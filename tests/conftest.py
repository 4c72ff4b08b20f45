"""What all tests share."""

from tacit.mechanisms.noise import Key
from tacit.trainers.selftest import tested

# The generator tests itself before the first key, the engine before the first sum. Tests that put
# something else in their place come later.
Key.fresh()
tested()
