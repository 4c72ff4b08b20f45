"""Relation and arithmetic: members inside, their values outside."""

from __future__ import annotations

import json
import pickle

import pytest

from tacit.engine.arithmetic import Arithmetic
from tacit.losses import get_loss
from tacit.plan import Plan
from tacit.preprocessing import ClipNorm
from tacit.privacy import Budget
from tacit.privacy.events import NEIGHBORS
from tacit.privacy.relation import Relation
from tacit.trainers import DPGD


def plan_of(**given):
    return Plan(Budget(1.0, 1e-5), (ClipNorm(1.0),), DPGD(steps=2), get_loss("logistic"), **given)


def test_every_relation_has_a_sensitivity():
    assert list(NEIGHBORS) == list(Relation)


@pytest.mark.parametrize("member", [*Relation, *Arithmetic])
def test_a_member_is_written_as_its_value(member):
    assert json.dumps(member) == json.dumps(member.value)
    assert (f"{member}", repr(member)) == (member.value, repr(member.value))
    assert pickle.loads(pickle.dumps(member)) is member


def test_a_plan_takes_names_and_holds_members():
    plan = plan_of(neighbors="replace_one", arithmetic="fast")
    assert plan.neighbors is Relation.REPLACE_ONE and plan.arithmetic is Arithmetic.FAST
    assert plan == plan_of(neighbors=Relation.REPLACE_ONE, arithmetic=Arithmetic.FAST)
    certificate = plan.calibrate(size=50, columns=3, classes=2).certify(False, plan.stages)
    written = json.loads(certificate.to_json())
    assert written["neighbors"] == "replace_one" and written["plan"]["arithmetic"] == "fast"


@pytest.mark.parametrize("given", [{"neighbors": "swap"}, {"arithmetic": "rounded"}])
def test_what_is_none_of_them_is_refused(given):
    with pytest.raises(ValueError, match=next(iter(given))):
        plan_of(**given)
