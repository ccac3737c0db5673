"""Every decision of the model as one small method, so that overriding a single method plays a defect of HAMi.

A method decides as the release whose traits the rules were made with (pytest_hami.contract.releases). Each module names
the files of HAMi whose behaviour it holds.
"""

from __future__ import annotations

from pytest_hami.simulator.hami.rules.admission import AdmissionRules
from pytest_hami.simulator.hami.rules.base import tokens
from pytest_hami.simulator.hami.rules.bookkeeping import AccountingRules
from pytest_hami.simulator.hami.rules.cards import CardRules
from pytest_hami.simulator.hami.rules.choice import ChoiceRules
from pytest_hami.simulator.hami.rules.locking import CallRules, LockRules
from pytest_hami.simulator.hami.rules.nodes import NodeRules
from pytest_hami.simulator.hami.rules.reporting import ReportRules

__all__ = ["Rules", "tokens"]


class Rules(AdmissionRules, CardRules, ChoiceRules, AccountingRules, NodeRules, LockRules, CallRules, ReportRules):
    """HAMi of one release. A subclass that overrides one method is a HAMi with one defect."""
