"""``tacit predict``: predictions of a model for a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tacit.cli.console import Json, argument, dump, flag, say
from tacit.cli.options import Decimal, Force, Key


def predict(
    model: Annotated[Path, argument("MODEL", "Directory of a fit, or its model file.")],
    table: Annotated[Path, argument("TABLE", "Rows with the columns of the schema, or features.")],
    *,
    out: Annotated[Path, flag("File for the predictions: .csv or .parquet.")],
    proba: Annotated[bool, flag("Also the probability of every class.", "--proba")] = False,
    extractor: Annotated[str | None, flag("The network of a model of features, if a file.")] = None,
    decimal: Decimal = None,
    key: Key = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict for every row of a table, in its order.

    \b
    Examples:
      tacit predict model new.csv --out predictions.csv --proba
      tacit predict model new.npz --out predictions.csv
    """
    from tacit.cli.tasks.predict import predict as write_predictions

    rows = write_predictions(
        model, table, out, proba=proba, force=force, extractor=extractor, decimal=decimal, key=key
    )
    if as_json:
        dump({"rows": rows, "out": str(out)})
    else:
        say(f"Wrote predictions for {rows} rows to {out}")
