"""Rows and tables, however they are stored."""

from tacit.data.readers import read_table
from tacit.data.rows import Rows, as_rows
from tacit.data.scans import Scan, scan
from tacit.data.schema import CategoryColumn, NumberColumn, Schema
from tacit.data.tables import Table, as_table

__all__ = [
    "CategoryColumn",
    "NumberColumn",
    "Rows",
    "Scan",
    "Schema",
    "Table",
    "as_rows",
    "as_table",
    "read_table",
    "scan",
]
