"""Options that several commands have, in the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tacit.cli.console import argument, flag

EPSILON = """Privacy budget: seeing the model moves anybody's odds on whether a row was used by a
factor of at most e^epsilon. 1 is strong, 0.1 very strong, 10 weak."""
DELTA = """The small probability with which that may fail: well below one over the number of
rows."""
LEDGER = """The ledger: a file such as ledger.db, or postgresql://user@host/database, with its
password in ~/.pgpass or PGPASSWORD."""
DATASET = "Name of the data set's account in the ledger."

Epsilon = Annotated[float, flag(EPSILON)]
Delta = Annotated[float, flag(DELTA)]
Force = Annotated[bool, flag("Overwrite what is there.", "--force")]
Quiet = Annotated[bool, flag("No progress bar.", "--quiet")]
Seed = Annotated[int | None, flag("Repeatable noise: for tests, NOT FOR RELEASE.")]
Out = Annotated[Path, flag("Directory for model, certificate and report.")]
PrivateTable = Annotated[Path, argument("TABLE", "Private rows: CSV, TSV or Parquet.")]
SchemaFile = Annotated[Path, flag("Public facts about the columns: see tacit schema.")]
Target = Annotated[
    str | None, flag("Column to predict, unless the schema names it; of features, the array.")
]
Public = Annotated[
    Path | None, flag("Public rows of the same schema, for pillar, gep, adadps, dp-raft+pillar.")
]
PublicSize = Annotated[int | None, flag("Public stand-in for a private number of rows.")]
Decimal = Annotated[
    str | None, flag("What separates decimals in a text file: , if its fields have ; between them.")
]
Key = Annotated[
    str | None, flag("Which array of an .npz holds the rows, if its name does not tell.", "--key")
]
LedgerPlace = Annotated[str | None, flag(LEDGER, "--ledger")]
Dataset = Annotated[str | None, flag(DATASET, "--dataset")]
