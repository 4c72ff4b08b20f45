"""Steps without a counterpart, and what to do instead."""

from __future__ import annotations

COLUMNS = "which columns it {} would leak; name them from public knowledge"
SCHEMA = "describe the table in a schema and start the stages of DPLinearClassifier with "
SCHEMA += "Encode(schema)"
INSIDE = "it takes single columns; put it into a transformer of the ColumnTransformer, or first"
COMPONENTS = "use PCA(n_components=k)"
SEARCH = "its search over settings would not be paid for; choose the settings in advance and pass "
SEARCH += "the plain estimator"
SEVERAL = "several targets in one model are not offered; fit one for each, and split the budget"
ALREADY = "it is private already; give it stages= instead of a pipeline"
L1 = "an L1 penalty is not offered; use Ridge(alpha)"

LINEAR = "LogisticRegression, SGDClassifier, LinearSVC, Ridge, LinearRegression, SGDRegressor or "
LINEAR += "HuberRegressor"

UNKNOWN = (
    "privatize knows ColumnTransformer, OneHotEncoder, OrdinalEncoder, FunctionTransformer, "
    "KBinsDiscretizer, PolynomialFeatures, SplineTransformer, SimpleImputer, StandardScaler, "
    "MinMaxScaler, MaxAbsScaler, Normalizer, PCA, TruncatedSVD and random projections; do it "
    "before, row by row, with public constants, or leave it out"
)

REFUSED = {
    "KNNImputer": "it copies values of other private rows; use SimpleImputer(strategy='mean')",
    "IterativeImputer": "its rounds of regressions have no bound here; use "
    "SimpleImputer(strategy='mean'), or the stage NoiselessImpute('ridge', columns=...)",
    "MissingIndicator": "make the indicator columns yourself, row by row, which costs nothing",
    "RobustScaler": "quartiles jump when rows do; use StandardScaler",
    "QuantileTransformer": "quantiles jump when rows do; bounds=(low, high) maps columns to "
    "[-1, 1], and StandardScaler scales them",
    "PowerTransformer": "its exponents are fitted to the private rows; take logarithms or roots "
    "yourself, row by row, and give bounds= for the result",
    "KBinsDiscretizer": INSIDE,
    "Binarizer": "compare with the threshold yourself, row by row, which costs nothing",
    "SelectKBest": f"{COLUMNS.format('selects')}, or {COMPONENTS}",
    "SelectPercentile": COLUMNS.format("selects"),
    "SelectFromModel": COLUMNS.format("selects"),
    "RFE": COLUMNS.format("selects"),
    "VarianceThreshold": COLUMNS.format("drops"),
    "OneHotEncoder": INSIDE,
    "OrdinalEncoder": INSIDE,
    "TargetEncoder": f"it reads the private targets; {SCHEMA}",
    "FeatureUnion": "only steps one after the other are mapped; make one pipeline",
    "PolynomialFeatures": INSIDE,
    "SplineTransformer": INSIDE,
    "FunctionTransformer": INSIDE,
    "KernelPCA": COMPONENTS,
    "IncrementalPCA": COMPONENTS,
    "SparsePCA": COMPONENTS,
    "FastICA": COMPONENTS,
    "NMF": "use TruncatedSVD(n_components=k)",
}

REFUSED_LAST = {
    "LogisticRegressionCV": SEARCH,
    "RidgeCV": SEARCH,
    "RidgeClassifierCV": SEARCH,
    "LassoCV": SEARCH,
    "ElasticNetCV": SEARCH,
    "GridSearchCV": SEARCH,
    "RandomizedSearchCV": SEARCH,
    "HalvingGridSearchCV": SEARCH,
    "HalvingRandomSearchCV": SEARCH,
    "Lasso": L1,
    "ElasticNet": L1,
    "TransformedTargetRegressor": "target_bounds= maps the target already; pass its regressor",
    "CalibratedClassifierCV": "its calibration reads the private rows once more; pass its "
    "estimator",
    "OneVsRestClassifier": "several classes are handled anyway; pass its estimator",
    "MultiOutputClassifier": SEVERAL,
    "MultiOutputRegressor": SEVERAL,
    "DPLinearClassifier": ALREADY,
    "DPLinearRegressor": ALREADY,
}
