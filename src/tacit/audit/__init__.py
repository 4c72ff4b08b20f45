"""Empirical lower bounds on the ε of whole plans, preprocessing included.

>>> from tacit.audit import audit
>>> found = audit("dpsgd-f", epsilon=4.0, delta=1e-5, runs=200, seed=0)
>>> found.holds
True
"""

from tacit.audit.audits import Audit, audit, audit_leaky, prepare
from tacit.audit.neighbouring_tables import Pair, Table

__all__ = ["Audit", "Pair", "Table", "audit", "audit_leaky", "prepare"]
