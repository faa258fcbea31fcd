"""Mistakes of a user; every line that ends in `# error` must be one. It is read, never run."""

import sottovoce as sv


def misspell(mean: sv.Mean, session: sv.Session, release: sv.Release) -> None:
    sv.Maen(bounds=(0, 1))  # error
    sv.Mean(bound=(0, 1))  # error
    print(mean.valeu_)  # error
    mean.fitt([1.0], epsilon=1.0)  # error
    mean.fit([1.0], epsilom=1.0)  # error
    sv.Ridge(metod="statistics")  # error
    print(sv.Ridge().ceof_)  # error
    sv.LogisticRegression().predict_prob([[1.0]])  # error
    sv.audit.per_instanc(release, [[1.0]], [1.0])  # error
    sv.market.Markett({"ada": 0.5}, trade_off=1.0)  # error
    print(sv.errors.BudgetExceded)  # error
    session.balanse("ada")  # error
    release.to_jsn()  # error


def confuse(mean: sv.Mean, session: sv.Session) -> None:
    sv.Mean(bounds="0, 1")  # error
    sv.Mean(bounds=3)  # error
    sv.Mean((0, 1), "spread")  # error
    mean.fit()  # error
    mean.fit(3.0, epsilon=1.0)  # error
    mean.fit([1.0], epsilon=1.0, groups=3)  # error
    mean.plan()  # error
    sv.Quantile(q="half", bounds=(0, 1))  # error
    sv.Ridge(bounds=(0, 1), alpha="1")  # error
    sv.Uniform("mean")  # error
    session.release(mean, [1.0], groups=["ada"])  # error
    session.charge({"ada": 0.1})  # error
    session.release("mean", [1.0], key="first")  # error
    sv.market.Market({"ada": 0.5})  # error
    sv.market.Market({"ada": 0.5}, trade_off="low")  # error
    whole: int = mean.value_  # error
    print(whole)
