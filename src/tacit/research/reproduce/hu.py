"""Hu et al. 2024: what preprocessing without noise costs."""

from __future__ import annotations

from tacit.research.reproduce.claim import Claim
from tacit.research.reproduce.hu_projection import clipping, lowrank
from tacit.research.reproduce.hu_sensitivity import group, overall

__all__ = ["CLAIMS"]

_ROWS = (
    "2,000 columns instead of 6,000, for time. The paper asks for approximately low rank but "
    "generates none of the rest: 1 % of noise is added in all columns. It does not say its batch "
    "size (here 100)"
)

CLAIMS: tuple[Claim, ...] = (
    Claim(
        name="hu-group",
        source="Hu et al. 2024, Figure 2",
        title="Theorem 2 against group privacy",
        says="For the Gaussian mechanism after quantization (η = 0.01, 0.1), mean imputation (100 "
        "or 53 rows) and PCA (eigengaps 0.15, 0.07), Theorem 2 gives a far smaller ε than group "
        "privacy: the smaller η, the better; much the same where over 90 % of the rows have gaps; "
        "constant in n for PCA, where group privacy grows.",
        test=group,
        differs="The paper does not say at which ε and δ its curves were computed. Gaps are "
        "counted by rows.",
    ),
    Claim(
        name="hu-table2",
        source="Hu et al. 2024, Table 2, Theorem 17, Propositions 3, 5 and 6, Corollary 4, Table 1",
        title="Overall privacy of preprocessed pipelines",
        says="Closed forms for the Rényi ε̂ of a mechanism after preprocessing, α ≥ 11: for example "
        "1.05αε²(1 + 12.2²/δ²) for the Gaussian mechanism after PCA with eigengap δ. They are a "
        "minimal increase of constant order.",
        test=overall,
        differs="Entries are computed as printed, with the numbers of the table's own conditions.",
    ),
    Claim(
        name="hu-lowrank",
        source="Hu et al. 2024, Figure 3 and appendix F.1",
        title="PCA without noise on rows of low rank",
        says="1,000 rows of 6,000 columns and rank 50: for every overall ε, private logistic "
        "regression after PCA without noise has a smaller excess empirical loss than without "
        "preprocessing, as its cost is minor, and DP-PCA has the largest.",
        test=lowrank,
        differs=f"{_ROWS}, and the figure prints no numbers. PCA's price is Table 2's for descent "
        "with the eigengap of the rows as they come; the corrected one is that of full batches.",
    ),
    Claim(
        name="hu-clipping",
        source="Hu et al. 2024, Table 4 and appendix F.2",
        title="Clipping rows before a projection",
        says="Clipped to 0.1, 0.7 or 0.99 of the largest norm R, or not at all, the pipeline has "
        "0.84, 0.89, 0.88, 0.89 at ε = 1, 0.84, 0.89, 0.89, 0.89 at ε = 2 and 0.85, 0.90, 0.90, "
        "0.90 at ε = 5: clipping lowers the sensitivity of PCA from 12R/(nδ) to 12C/(nδ), which "
        "leaves more to training, but makes rows inaccurate.",
        test=clipping,
        differs=f"{_ROWS}. Its Table 4 is headed excess loss; numbers that rise with ε and a text "
        "that speaks of accuracy are taken for accuracy.",
    ),
)
