"""Private linear models for scikit-learn users."""

from tacit.linear_model.classifier import DPLinearClassifier
from tacit.linear_model.regressor import DPLinearRegressor

__all__ = ["DPLinearClassifier", "DPLinearRegressor"]
