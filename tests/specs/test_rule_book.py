"""The tables of ``specs/README.md`` say what the code says: a row that does not is seen."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from rule_book import BOOK, span, table, values

from invariants.known import KNOWN_DEFECTS
from invariants.manager import goals as of_manager
from invariants.rules import CATALOGUE, RULES
from invariants.scheduler import goals as of_scheduler
from model.dialect import Dialect
from model.releases import PROPOSALS, RELEASES

TEXT = BOOK.read_text(encoding="utf-8")
NO_SWITCHES = ("name", "waivers", "known_defects")


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_rules_are_those_of_the_catalogue() -> None:
    said = [
        (
            rule.id,
            rule.sentence,
            [f"{p.__module__.rsplit('.', 1)[1]}.{p.__name__}" for p in rule.predicates],
            rule.of_state,
        )
        for rule in RULES
    ]
    rows = table(TEXT, "## Rules")
    assert [(row[0], row[1], named(row[2]), "of state" in row[2]) for row in rows] == said


def test_the_rules_of_the_scheduler_level_are_judged_where_it_says() -> None:
    rows = table(TEXT, "## The scheduler level")
    where = {rule: named(row[2]) for row in rows for rule in row[0].split(", ")}
    for rule in CATALOGUE:
        assert not rule.scheduler or rule.scheduler in where[rule.id], rule.id
    judged = {rule.id for rule in CATALOGUE if rule.scheduler}
    assert where.keys() == judged | {"I18", "lockstep"}


def test_the_waivers_are_those_of_the_rows_and_the_proposals() -> None:
    said = {
        waiver.rule: (
            span(lambda d, rule=waiver.rule: any(w.rule == rule for w in d.waivers)),  # type: ignore[misc]
            [p.name for p in PROPOSALS if any(w.rule == waiver.rule for w in p.waivers)],
        )
        for dialect in (*PROPOSALS, *(release.dialect for release in RELEASES))
        for waiver in dialect.waivers
    }
    rows = table(TEXT, "## Rules that a dialect breaks by design")
    assert {row[0]: (row[1], named(row[2])) for row in rows} == said


def test_every_switch_has_a_row_with_its_values() -> None:
    switches = {field.name for field in fields(Dialect)} - set(NO_SWITCHES)
    rows = table(TEXT, "## Dialect switches")
    said = {named(row[2])[0]: row[3] for row in rows if named(row[2])}
    assert said == {name: values(name) for name in switches}


def test_the_known_defects_are_in_the_releases_that_their_rows_name() -> None:
    rows = table(TEXT, "## Known defects")
    said = {row[0]: row[1] for row in rows}
    assert said == {d.id: span(lambda x, i=d.id: i in x.known_defects) for d in KNOWN_DEFECTS}  # type: ignore[misc]
    for row in rows:
        rules, level = row[3].rsplit(", ", 1)
        defects = [defect for defect in KNOWN_DEFECTS if defect.id == row[0]]
        assert set(rules.split(" and ")) == {defect.rule for defect in defects}
        assert level in ("both", *{defect.level for defect in defects})


def test_the_goals_are_those_that_are_watched() -> None:
    assert {row[0] for row in table(TEXT, "## Goals")} == set(of_manager.GOALS)
    line = next(x for x in TEXT.splitlines() if x.startswith("At the scheduler level (`inv"))
    assert named(line)[1:] == list(of_scheduler.GOALS)


def test_what_releases_cannot_meet_is_told_with_the_reason() -> None:
    asked = {"manager": of_manager.unreachable_goals, "scheduler": of_scheduler.unreachable_goals}
    said = {
        (goal, level, span(lambda d, goal=goal, of=unreachable: goal in of(d)), why)  # type: ignore[misc]
        for level, unreachable in asked.items()
        for release in RELEASES
        for goal, why in unreachable(release.dialect).items()
    }
    rows = table(TEXT, "What releases cannot meet is not asked of them:")
    assert {tuple(row) for row in rows} == said


@pytest.mark.parametrize(
    ("right", "wrong", "check"),
    [
        ("| I1 | Every", "| I1 | No", test_the_rules_are_those_of_the_catalogue),
        ("| I18 | 0.30.0 to", "| I18 | 0.31.0 to",
         test_the_waivers_are_those_of_the_rows_and_the_proposals),
        ("`allocation` 0.31.0;", "`allocation` 0.32.0;",
         test_every_switch_has_a_row_with_its_values),
        ("| K13 | from", "| K13 | up to",
         test_the_known_defects_are_in_the_releases_that_their_rows_name),
        ("| prefix caching off |", "| prefix caching on |",
         test_the_goals_are_those_that_are_watched),
        ("| scheduler | 0.30.0 to 0.32.0 |", "| scheduler | all |",
         test_what_releases_cannot_meet_is_told_with_the_reason),
        ("| `invariants/scheduler/fences.py` |", "| `invariants/scheduler/audit.py` |",
         test_the_rules_of_the_scheduler_level_are_judged_where_it_says),
    ],
)  # fmt: skip
def test_a_table_that_says_otherwise_is_seen(
    right: str, wrong: str, check: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert TEXT.count(right) == 1
    monkeypatch.setitem(globals(), "TEXT", TEXT.replace(right, wrong))
    assert callable(check)
    with pytest.raises((AssertionError, KeyError)):
        check()
