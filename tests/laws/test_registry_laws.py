"""Every question of the registry obeys the laws, and nobody in it loses more than their charge.

The audits of one run raise a false alarm with probability at most 7 · 2 · 4e-8 < 1e-6.
"""

from __future__ import annotations

import pytest

import registry_laws
from registry_laws import QUESTIONS
from sottovoce.estimators import _BUILT_IN

#: How many answers are drawn every time: a model takes longer, and is audited in its own tests too.
DRAWS = {"column": 2000, "regression": 200, "classes": 200}
every_question = pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.name)


@every_question
@pytest.mark.parametrize("law", registry_laws.LAWS, ids=lambda law: law.__name__[11:])
def test_every_question_obeys(law, question):
    law(question)


@every_question
def test_nobody_loses_more_than_their_charge(question):
    registry_laws.audit(question, DRAWS[question.reads])


@every_question
@pytest.mark.long
def test_nobody_loses_more_than_their_charge_in_many_draws(question):
    registry_laws.audit(question, 8000)


def test_all_but_one_are_held_to_them():
    assert len(QUESTIONS) == len(_BUILT_IN) - 1
