"""Commands of research, added to those of the command line."""

from tacit.cli.commands import COMMANDS
from tacit.research.commands import median, price, reproduce, theory

__all__: list[str] = []

for name, module in (
    ("price", price),
    ("median", median),
    ("theory", theory),
    ("reproduce", reproduce),
):
    COMMANDS.add(name, module.attach)
