"""What all tests share."""

from tacit.mechanisms.noise import Key

# The generator tests itself before the first key. Tests that put other noise in its place
# come later.
Key.fresh()
