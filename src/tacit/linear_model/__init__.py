"""Private linear models for scikit-learn users."""

from tacit.linear_model.estimators import DPLinearClassifier, DPLinearRegressor

__all__ = ["DPLinearClassifier", "DPLinearRegressor"]
