"""Commands of research, added to those of the command line."""

from tacit.cli.main import app
from tacit.research.commands.median import attach as attach_median
from tacit.research.commands.price import attach as attach_price
from tacit.research.commands.reproduce import attach as attach_reproduce
from tacit.research.commands.theory import attach as attach_theory

__all__: list[str] = []

for attach in (attach_price, attach_theory, attach_median, attach_reproduce):
    attach(app)
