"""The same queries put to cvc5, as SMT-LIB 2 text, where it is installed."""

import importlib
import importlib.util
from typing import Any

from invariants.proofs.transition_system.solver import ANSWERS, LIMIT_MS, Answer


def available() -> bool:
    return importlib.util.find_spec("cvc5") is not None


def check(script: str, models: bool = False, limit_ms: int = LIMIT_MS) -> Answer:
    """cvc5's answer to a script with one query.

    With ``models`` it looks for finite models, which is how it answers that there is one; without,
    it is faster where there is none. Either way it gives up on some queries that the other way
    decides, depending on the order of the text, so the other way is tried then.
    """
    answer = _ask(script, models, limit_ms)
    return answer if answer != "unknown" else _ask(script, not models, limit_ms)


def _ask(script: str, models: bool, limit_ms: int) -> Answer:
    cvc5: Any = importlib.import_module("cvc5")
    solver = cvc5.Solver()
    solver.setOption("finite-model-find", str(models).lower())
    solver.setOption("tlimit-per", str(limit_ms))
    solver.setLogic("ALL")
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, script, "query")
    symbols = parser.getSymbolManager()
    answer = "unknown"
    while not (command := parser.nextCommand()).isNull():
        said = str(command.invoke(solver, symbols)).strip()
        if said in ANSWERS:
            answer = said
    return ANSWERS[answer]
