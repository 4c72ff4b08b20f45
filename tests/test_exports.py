"""What the packages export: a name that is added, lost or renamed shows here, and is meant."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import tacit

SOURCE = Path(tacit.__file__).parent
#: Packages that people do not import from.
INNER = {"cli", "files", "params", "progress", "registry"}
EXPORTED = {
    "tacit": """
        Budget Certificate DPLinearClassifier DPLinearRegressor DPSearch Ledger load
        privatize recipe save
    """,
    "tacit.audit": """
        Audit audit audit_leaky Pair prepare Table
    """,
    "tacit.data": """
        as_rows as_table CategoryColumn DateColumn declared_schema NumberColumn read_table Rows
        Scan scan Schema Table UnknownColumn
    """,
    "tacit.datasets": """
        decode_features fetch find load_adult load_bank load_census_kdd load_chest_xray
        load_cifar10 load_cifar100 load_cod_rna load_diabetes130 load_fashion_mnist
        load_kdd99 load_mnist load_sst2 load_table load_w8a SOURCES
    """,
    "tacit.diagnostics": """
        Advice advise Clipping clipping Coefficients Concentration concentration
        Crowding crowding diameter glm_coefficients inspect inspect_privately
        Inspection Moments NotReleasable Option power_law_fit PowerLaw PrivateInspection
        restricted_lipschitz RowFacts Separability separability Spectrum spectrum
    """,
    "tacit.exceptions": """
        BudgetError CertificateError ClusterError FileError InputError LedgerError
        MachineError MissingBound NotNumbers PrivateTestError ReleaseError SchemaError
        TacitError
    """,
    "tacit.features": """
        extract Extractor FeatureSet load_features open_extractor save_features
    """,
    "tacit.ledger": """
        Charge DeferredLedger Entry Ledger Limits Remaining Reservation
    """,
    "tacit.metrics": """
        Estimate evaluate Evaluation
    """,
    "tacit.linear_model": """
        DPLinearClassifier DPLinearRegressor
    """,
    "tacit.losses": """
        Absolute Clipped clipped get_loss Hinge Huber HuberHinge Logistic Loss LOSSES
        Savage Softmax Squared Tangent Tempered
    """,
    "tacit.mechanisms": """
        exponential_choice Key private_bounds private_mean private_quantile
        private_radius private_scale private_second_moment
    """,
    "tacit.model_selection": """
        DPSearch
    """,
    "tacit.networks": """
        fit_module ModuleFit
    """,
    "tacit.persistence": """
        load save
    """,
    "tacit.pipeline": """
        Choice privatize PrivatizedClassifier PrivatizedRegressor
    """,
    "tacit.plan": """
        CalibratedPlan Fit Plan
    """,
    "tacit.preprocessing": """
        Bound ByColumns ClipNorm Context Dedup Encode FillGaps NoiselessImpute NoiselessPCA
        NoiselessScale Normalize PrivateBlocks PrivateBounds PrivateByColumns PrivateCenter
        PrivateCheckedPCA
        PrivateClip PrivateEncode PrivateEqualize PrivateImpute PrivatePCA PrivatePrecondition
        PrivateScale PublicCenter PublicFeatures PublicPCA PublicPrecondition PublicRotation
        PublicScale Quantize RandomProjection Root SoftPCA Stage
    """,
    "tacit.privacy": """
        Budget calibrate Certificate Drift Event Expense Failure Gamma Gaussian Iterated
        Parallel PoissonGaussian Repeated Selection Unit Verification
    """,
    "tacit.report": """
        plain_text render_html render_text
    """,
    "tacit.research.instances": """
        clipping_bias fingerprinting Instance large_margin_mixture low_rank median
        two_clusters
    """,
    "tacit.research.median": """
        DPGeometricMedian
    """,
    "tacit.research.price": """
        Price price
    """,
    "tacit.research.reproduce": """
        Check Claim CLAIMS Figure Finding Measured Null Outcome reproduce Table Work
    """,
    "tacit.research.theory": """
        centring compare Comparison decay descent flatness halfspace_learner HalfspaceLearner
        halfspaces lower projection Risk separability Setting
    """,
    "tacit.research.trainers": """
        AdaDPS DPRAFT FlattestDPGD GammaSGD GEP IteratedSGD LabelledAdaDPS LocalDPGD NoisySGD
        PowerGEP
    """,
    "tacit.research.trajectories": """
        Directions module_run module_trajectory module_trajectory_privately ReleasedTrajectory
        RowFile Sketch spectral_density Trajectory trajectory trajectory_privately
    """,
    "tacit.trainers": """
        Ball Box DPGD DPSGD GradientTrainer L1Ball Simplex SufficientStatistics Trainer
    """,
}


@pytest.mark.parametrize("module", EXPORTED)
def test_a_package_exports_the_names_that_are_listed_here(module):
    found = importlib.import_module(module).__all__
    assert sorted(found, key=lambda name: (name.lower(), name)) == EXPORTED[module].split()


def test_every_list_of_exported_names_is_known_here():
    packages = [path.parent for path in SOURCE.rglob("__init__.py")]
    names = {".".join(path.relative_to(SOURCE.parent).parts) for path in packages}
    found = {name for name in names if getattr(importlib.import_module(name), "__all__", ())}
    assert found <= EXPORTED.keys()


@pytest.mark.parametrize(
    "path", [p for p in sorted(SOURCE.rglob("__init__.py")) if p.parent.name != "commands"], ids=str
)
def test_a_package_binds_no_other_names(path):
    """What is imported into a package is exported, or can be found there all the same."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bound = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module.startswith("tacit")
        for alias in node.names
        if not (alias.asname or alias.name).startswith("_")
    }
    module = ".".join(path.parent.relative_to(SOURCE.parent).parts)
    assert bound <= set(EXPORTED.get(module, "").split())


def test_submodules_are_reached_through_the_package():
    """Each in an interpreter that has imported nothing else, and completion knows them."""
    inside = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    public = {name for name in inside - INNER if not name.startswith("_")}
    assert public <= set(dir(tacit))
    code = f"import tacit; print(*[getattr(tacit, n).__name__ for n in {sorted(public)}])"
    code += "; tacit.audit.audit, tacit.diagnostics.inspect, tacit.trainers.DPGD"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"tacit.{name}" for name in sorted(public)]
    assert not set(dir(tacit)) & INNER
