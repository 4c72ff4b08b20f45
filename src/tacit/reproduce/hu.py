"""Paper 004: what preprocessing without noise costs."""

from __future__ import annotations

from tacit.reproduce.claim import Claim
from tacit.reproduce.hu_sensitivity import group, overall

__all__ = ["CLAIMS"]

CLAIMS: tuple[Claim, ...] = (
    Claim(
        name="hu-group",
        source="paper 004, Figure 2",
        title="Theorem 2 against group privacy",
        says="For the Gaussian mechanism after quantization (η = 0.01, 0.1), mean imputation (100 "
        "or 53 rows) and PCA (eigengaps 0.15, 0.07), Theorem 2 gives a far smaller ε than group "
        "privacy: the smaller η, the better; much the same where over 90 % of the rows have gaps; "
        "constant in n for PCA, where group privacy grows.",
        test=group,
        differs="The paper does not say at which ε and δ its curves were computed. Gaps are counted "
        "by rows.",
    ),
    Claim(
        name="hu-table2",
        source="paper 004, Table 2, Theorem 17, Propositions 3, 5 and 6, Corollary 4, Table 1",
        title="Overall privacy of preprocessed pipelines",
        says="Closed forms for the Rényi ε̂ of a mechanism after preprocessing, α ≥ 11: for example "
        "1.05αε²(1 + 12.2²/δ²) for the Gaussian mechanism after PCA with eigengap δ. They are a "
        "minimal increase of constant order.",
        test=overall,
        differs="Entries are computed as printed, with the numbers of the table's own conditions.",
    ),
)
