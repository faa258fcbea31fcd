# SPDX-License-Identifier: Apache-2.0
"""Modules that were moved after version 0.1.0: their old paths import until the next version.

An old path gives what the new module has, and a DeprecationWarning that names it. Programs (cli,
web) are not listed: nobody imports them. Nothing is imported here before it is asked for, and
nothing here is called before somebody imports what a package of ours does not have: each package
that had such modules names this file as one more place to look in.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

#: Old path → new path, both inside this package.
MODULES = {
    "audit.composition": "audit.instance_losses",
    "audit.curves": "audit.mechanisms",
    "audit.instance": "audit.instance_losses",
    "audit.people": "audit.instance_losses",
    "audit.public": "audit.public_bounds",
    "audit.reading": "audit.inputs",
    "audit.sealed": "audit.confidential",
    "audit.setting": "audit.inputs",
    "audit.told": "audit.instance_losses",
    "bounds": "schema",
    "census": "data.census",
    "classes": "schema",
    "columns": "data.source",
    "conversion": "accounting.renyi",
    "data.files": "data.engines.arrow",
    "data.readers": "data.encoding",
    "engine": "data.engine",
    "engines": "data.engines",
    "engines.arrow": "data.engines.arrow",
    "engines.dask": "data.engines.dask",
    "engines.duckdb": "data.engines.duckdb",
    "engines.spark": "data.engines.spark",
    "estimators.classification": "estimators.logistic_mechanism",
    "estimators.classification.boundary": "estimators.logistic_mechanism",
    "estimators.classification.settings": "estimators.logistic_mechanism",
    "estimators.classification.voices": "estimators.logistic_mechanism",
    "estimators.kept": "estimator",
    "estimators.labels": "estimators.label_private",
    "estimators.linear_map": "estimators.label_private",
    "estimators.picked": "estimators.baseline_errors",
    "estimators.regression": "estimators",
    "estimators.regression.expected": "estimators.ridge_errors",
    "estimators.regression.moments": "estimators.ridge_statistics",
    "estimators.regression.objective": "estimators.ridge_objective",
    "estimators.regression.output": "estimators.ridge_output",
    "estimators.regression.staged": "estimators.ridge_objective",
    "estimators.regression.sums": "data.regression_kernels",
    "estimators.risk": "estimators.erm_mechanism",
    "estimators.risk.descent": "estimators.erm_mechanism",
    "estimators.risk.gradients": "data.regression_kernels",
    "estimators.risk.loudness": "estimators.erm_mechanism",
    "estimators.risk.pace": "estimators.erm_mechanism",
    "estimators.risk.planned": "estimators.erm",
    "estimators.sampled": "estimators.baselines",
    "estimators.samples": "estimators.posterior_mechanism",
    "estimators.samples.concentration": "estimators.posterior_mechanism",
    "estimators.samples.drawn": "estimators.posterior",
    "estimators.samples.gram": "estimators.posterior_mechanism",
    "estimators.samples.grants": "estimators.posterior_mechanism",
    "experiments": "papers",
    "experiments.as_printed": "papers.instance_exact",
    "experiments.counterexamples": "papers.instance_claims",
    "experiments.errata": "papers.errata",
    "experiments.exact": "papers.instance_exact",
    "experiments.instance_efficiency": "papers.instance_figures",
    "experiments.instance_figures": "papers.instance_figures",
    "experiments.joint": "papers.instance_exact",
    "experiments.market": "papers.market_claims",
    "experiments.market_as_published": "papers.market_published",
    "experiments.market_claims": "papers.market_claims",
    "experiments.market_figures": "papers.market_figures",
    "experiments.market_worth": "papers.market_published",
    "experiments.other_counterexamples": "papers.errata",
    "experiments.outcome": "papers.plots",
    "experiments.pictures": "papers.plots",
    "experiments.registry": "papers.report",
    "experiments.report": "papers.report",
    "experiments.ridge": "papers.ridge_setup",
    "experiments.ridge_figures": "papers.ridge_figures",
    "experiments.ridge_sampling": "papers.ridge_tables",
    "experiments.ridge_tables": "papers.ridge_tables",
    "experiments.users": "papers.users_claims",
    "experiments.users_regression": "papers.users_regression",
    "experiments.users_tables": "papers.users_tables",
    "features": "data.encoding",
    "files": "data.engines.arrow",
    "grants": "data.budget_table",
    "ledgers.beside": "ledgers.keyfile",
    "ledgers.books": "ledgers.sql_ledger",
    "ledgers.chain": "ledgers.hash_chain",
    "ledgers.merkle": "ledgers.hash_chain",
    "ledgers.opened": "ledgers",
    "ledgers.quiet": "ledgers.witness",
    "ledgers.reading": "ledgers.sql_reading",
    "ledgers.replay": "ledgers.sql_reading",
    "ledgers.schema": "ledgers.sql_reading",
    "ledgers.signing": "ledgers.keyfile",
    "ledgers.witnesses": "ledgers.witness",
    "market.book": "market.payments",
    "market.continuous": "market.optimiser",
    "market.frontier": "market.allocation",
    "market.rule": "market.optimiser",
    "noise.choose": "noise.source",
    "noise.gaussian": "noise.source",
    "noise.grid": "noise.source",
    "noise.integer": "noise.source",
    "noise.laplace": "noise.source",
    "noise.normal": "noise.continuous",
    "noise.opendp_samplers": "noise.source",
    "noise.precise": "noise.source",
    "noise.radial": "noise.continuous",
    "noise.selection": "noise.source",
    "pages": "report",
    "pages.audit_page": "report.release",
    "pages.balances": "report.ledger",
    "pages.market_page": "report.market",
    "pages.market_terms": "market.terms",
    "pages.market_told": "report.market",
    "pages.outlook": "report.plan",
    "pages.page": "report.html",
    "pages.pictures": "svg",
    "pages.plan_page": "report.plan",
    "pages.release_page": "report.release",
    "pages.statement": "ledgers.statement",
    "pages.statement_page": "report.ledger",
    "private": "private_files",
    "question": "estimator",
    "recoding": "data.encoding",
    "rounding": "units",
    "solvers.accounting": "accounting.subsampled",
    "solvers.entries": "solvers.interior_point",
    "solvers.groups": "solvers.interior_point",
    "solvers.huber": "data.loss_kernels",
    "solvers.integrals": "accounting.profiles",
    "solvers.interior": "solvers.interior_point",
    "solvers.kappa": "accounting.kappa",
    "solvers.labels": "solvers.label_map",
    "solvers.leverages": "audit.leverages",
    "solvers.profiles": "accounting.profiles",
    "solvers.proxy": "estimators.ridge_errors",
    "solvers.renyi": "accounting.renyi",
    "solvers.scaled": "solvers.label_map",
    "solvers.signs": "solvers.interior_point",
    "solvers.suprema": "audit.leverages",
    "statistics": "data.kernels",
    "table": "arrays",
    "tally": "data.census",
    "terms": "data.loss_kernels",
}
#: What has another name in the new module: old path and name → new name.
NAMES = {
    ("columns", "Table"): "DataSource",
    ("engine", "Rows"): "Dataset",
    ("features", "InBall"): "UnitBallReader",
    ("features", "Named"): "ColumnReader",
    ("features", "Recoded"): "EncodedReader",
    ("noise.gaussian", "draw"): "draw_gaussian",
    ("noise.laplace", "draw"): "draw_laplace",
    ("question", "Question"): "Estimator",
    ("question", "ask"): "make_release",
    ("recoding", "contrasts"): "make_contrasts",
    ("statistics", "Owner"): "GroupLookup",
    ("table", "column"): "to_column",
    ("table", "matrix"): "to_matrix",
    ("table", "numbers"): "to_numbers",
}
PACKAGE = "sottovoce."


#: The place that packages name, after their own folder; Python asks the finder below about it.
OLD_PATHS = __file__


class MovedModuleFinder:
    """Finds what is at no path any more; Python asks it last."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return how a module is loaded from its old path, or None for any other."""
        if not name.startswith(PACKAGE) or name.removeprefix(PACKAGE) not in MODULES:
            return None
        spec = ModuleSpec(name, MovedModuleFinder, is_package=True)  # type: ignore[arg-type]
        spec.submodule_search_locations = [OLD_PATHS]
        return spec

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Let Python make an empty module."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Let a module look its names up in the one at the new path, and warn."""
        import warnings

        old = module.__name__.removeprefix(PACKAGE)
        new = PACKAGE + MODULES[old]

        def look_up(name: str) -> object:
            if name.startswith("__"):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return getattr(import_module(new), NAMES.get((old, name), name))

        module.__getattr__ = look_up  # type: ignore[method-assign]
        warnings.warn(
            f"{module.__name__} was moved to {new}; the old path ends with the next version.",
            DeprecationWarning,
            stacklevel=2,
        )


sys.path_importer_cache[OLD_PATHS] = MovedModuleFinder
