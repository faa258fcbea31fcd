"""Every question of the registry obeys the laws, and nobody in it loses more than their charge."""

from __future__ import annotations

import pytest

import registry_laws
from sottovoce.estimators import list_questions

QUESTIONS = list_questions().values()
every_question = pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.name)


@every_question
@pytest.mark.parametrize("law", registry_laws.LAWS, ids=lambda law: law.__name__[11:])
def test_every_question_obeys(law, question):
    law(question)


@every_question
@pytest.mark.parametrize("draws", [500, pytest.param(8000, marks=pytest.mark.long)])
def test_nobody_loses_more_than_their_charge(question, draws):
    registry_laws.audit(question, draws)
