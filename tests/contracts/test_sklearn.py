from sklearn.utils.estimator_checks import parametrize_with_checks
from tacit import DPLinearClassifier, DPLinearRegressor
from tacit.trainers import DPSGD

@parametrize_with_checks([DPLinearClassifier(), DPLinearRegressor(target_bounds=(-1000, 1000)), DPLinearClassifier(loss="hinge"), DPLinearClassifier(epsilon=10, trainer=DPSGD(steps=5))])
def test_checks(estimator, check):
    check(estimator)
