"""Commands of research, added to those of the command line."""

from tacit.cli.commands import COMMANDS
from tacit.research.commands import median, price, reproduce, theory

__all__: list[str] = []

COMMANDS.add("price", price.price)
COMMANDS.add("median", median.median)
COMMANDS.add("theory", theory.theory)
COMMANDS.add("reproduce", reproduce.reproduce)
