"""What runs every time and what only for long; and where books can be kept.

Books are kept in a file, or on a private server that starts when the first test asks for it.
"""

from __future__ import annotations

import hypothesis
import pytest

from ledgers.places import Place
from servers import postgres

#: What takes seconds and repeats, with other parameters or on a server, what another test does
#: every time; these run by `make test-long`. Parts of the names that pytest gives to tests.
REPEATED = (
    "test_kappa.py::test_no_attack_exceeds_kappa",
    "test_kappa.py::test_rounding_down_and_interpolation_cost_little[0.00",
    "test_kappa.py::test_rows_of_the_table_are_what_the_certificate_proves[0.0",
    "test_kappa.py::test_nothing_is_caught_where_nothing_is_planted",
    "test_engine_faults.py::test_spark_survives_and_names_faults",
    "test_looks.py::test_axe_finds_nothing_and_no_page_scrolls_sideways[light, wide, every other]",
    "test_logistic_audits.py::test_nobody_loses_more_than_the_charge[strictest-one row-exact",
    "test_logistic_audits.py::test_nobody_loses_more_than_the_charge[loosest-many rows-exact",
    "test_errata.py::test_the_command_writes_the_page",
    "test_market_figures.py::test_one_small_run_of_figure_2_is_real",
    "test_planted_bugs.py::test_nothing_is_caught_where_nothing_is_planted[median]",
    "test_market_page.py::test_the_slider_moves_the_outcome_in_a_real_browser_by_keyboard[1000-light]",
    "test_ledger_page.py::test_by_keyboard_alone_in_a_real_browser[1000-dark]",
    "test_person.py::test_by_keyboard_alone_in_a_real_browser[1000-light]",
    "test_accuracy.py::test_the_expected_error_of_a_mean_is_right[many rows a person]",
    "test_ledger_faults.py::test_every_fault_at_every_step[on_server]",
    "test_ledger_crashes.py::test_killed_at_every_labelled_step[on_server]",
    "test_ledger_crashes.py::test_killed_while_new_books_are_made[on_server]",
    "test_ledger_races.py::test_a_key_that_is_asked_for_a_thousand_times_is_charged_once[on_server]",
    "test_ledger_tampering.py::test_every_edited_cell_on_a_server_is_noticed",
    "test_ledger.py::test_a_ledger_that_checks_and_then_acts_is_caught_by_the_race[on_server]",
    "test_renyi.py::test_curves_agree_with_quadrature[0.001-3.0]",
    "test_ledger_tampering.py::test_every_edited_cell_is_noticed",
    "test_public.py::test_the_calculator_covers_the_truth_and_is_near_it",
    "test_public.py::test_a_calculator_without_its_margin_would_be_noticed",
    "test_kappa.py::test_no_exact_loss_of_finite_weight_exceeds_the_charge",
    "test_labels.py::test_the_expected_error_is_right",
    "test_monte_carlo.py::test_no_measured_loss_exceeds_the_charge[strictest-many rows a "
    "person-median]",
    "test_monte_carlo.py::test_no_measured_loss_exceeds_the_charge[loosest-many rows a "
    "person-median]",
    "test_market.py::test_the_same_audit_does_not_refute_ours_and_would_refute_a_bug",
    "test_allocation.py::test_the_published_objective_is_beside_a_frontier[prior1]",
    "test_market_page.py::test_along_the_slider_more_money_buys_less_error_and_no_budget_is_exceeded[scaling]",
    "test_market_page.py::test_the_allocation_is_the_one_of_the_command_line[form1-words1]",
    "test_accounting.py::test_losses_are_those_of_dp_accounting_under_replacement[0.02-200-1e-05]",
    "test_posterior.py::test_charges_stay_within_grants_and_raising_one_grant_harms_nobody[adaptive]",
    "test_audits.py::test_the_worst_pair_comes_close_so_the_audit_can_fail[quartiles]",
    "test_erm_audits.py::test_no_measured_loss_of_sampled_people_exceeds_the_promise[strictest]",
    "test_truth.py::test_no_random_misreport_of_a_cost_and_a_cap_gains_a_coin",
    "test_planted_bugs.py::test_a_trade_off_fitted_to_the_reports_is_not_truthful",
    "test_audits.py::test_no_exact_loss_exceeds_the_charge[strictest-one row each-quartiles]",
    "test_audits.py::test_no_exact_loss_exceeds_the_charge[loosest-one row each-quartiles]",
    "test_ledger_faults.py::test_every_fault_at_every_statement[on_server-memory]",
    "test_ledger_faults.py::test_every_fault_at_every_statement[on_server-interrupt]",
    "test_market_figures.py::test_certified_payments_follow_from_the_choice_of_sigma_alone",
    "test_suprema.py::test_no_record_moves_the_fit_further_than_the_bound[2-3-0.02-1.0-1.5-1.0-identity]",
)


#: A busy machine is no failure: examples may take as long as they take.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")


#: What takes longest begins first, so that nobody waits for it at the end.
FIRST = (
    "::test_made_up_requests_break_nothing",
    "::test_spark_obeys",
    "::test_500_hostile_uploads",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks them before marks are looked at; tests on a server go to one process, so that it starts
    once.
    """
    for item in items:
        if any(name in item.nodeid for name in REPEATED):
            item.add_marker(pytest.mark.long)
        if "on_server" in item.nodeid or "on_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("server"))
    items.sort(key=lambda item: not any(name in item.nodeid for name in FIRST))


@pytest.fixture(scope="session")
def server():
    """The address of an empty database; one server a test process."""
    with postgres() as url:
        yield url


@pytest.fixture
def on_server(server, tmp_path) -> Place:
    """No books yet, in PostgreSQL."""
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute("DROP SCHEMA IF EXISTS sottovoce CASCADE")
    return Place(server, tmp_path / "keys")


@pytest.fixture
def in_file(tmp_path) -> Place:
    """No books yet, in SQLite."""
    (tmp_path / "books").mkdir()
    return Place(f"sqlite:///{tmp_path}/books/books.db", tmp_path / "books")


@pytest.fixture(params=["in_file", "on_server"])
def place(request) -> Place:
    """No books yet, in either."""
    return request.getfixturevalue(request.param)
