"""Rows and tables, however they are stored."""

from tacit.data.readers import read_table
from tacit.data.rows import Rows, as_rows
from tacit.data.scans import Scan, scan
from tacit.data.schema import (
    CategoryColumn,
    DateColumn,
    NumberColumn,
    Schema,
    UnknownColumn,
    declared_schema,
)
from tacit.data.tables import Table, as_table

__all__ = [
    "CategoryColumn",
    "DateColumn",
    "NumberColumn",
    "Rows",
    "Scan",
    "Schema",
    "Table",
    "UnknownColumn",
    "as_rows",
    "as_table",
    "declared_schema",
    "read_table",
    "scan",
]
