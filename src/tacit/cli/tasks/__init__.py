"""What the commands do, one module each, as plain functions: no printing, no exit codes.

What can be refused is refused before a private row is learned from, and files appear whole and
together, or not at all. A ledger hears last of them: first the budget is reserved, then files
are written, then the entry says what came of it.
"""
