"""Search with Hypothesis: a round of its machine for each rule that is found broken."""

import time

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.stateful import get_state_machine_test

from kvproof.errors import CouldNotRun
from kvproof.levels.level import Examiner
from kvproof.search.hunt import Hunt, conclude, start_hunt
from kvproof.search.outcome import Outcome, Progress, unseen
from model.program import AnyProgram

PROFILE = "pr"
UNTIL_TIME_IS_UP = 1_000_000

settings.register_profile(PROFILE, max_examples=1_500, stateful_step_count=20, deadline=None)


class RoundOver(BaseException):
    """Ends a Hypothesis run at once. Hypothesis takes an ``Exception`` for a failure to replay,
    and goes on climbing to its targets first, which takes longer than the search.

    Its cause is what went wrong, if something did.
    """

    def __init__(self, found: bool = False) -> None:
        super().__init__()
        self.found = found


def search(
    examiner: Examiner,
    run_seed: int,
    only: str | None = None,
    max_examples: int | None = None,
    seconds: float | None = None,
    progress: Progress = unseen,
) -> Outcome:
    """Let Hypothesis play: one finding per rule, and a new round after each that is found.

    ``max_examples`` counts the programs of all rounds; ``seconds`` is the time to look for
    failures, and what is found is minimised after it. Without either, the profile's budget.
    """
    started = time.monotonic()
    if max_examples is None and seconds is None:
        max_examples = settings.get_profile(PROFILE).max_examples
    hunt = start_hunt(examiner, run_seed, only, max_examples, seconds)
    while not hunt.over:
        try:
            found = _one_round(hunt, run_seed + len(hunt.failing), progress)
        except CouldNotRun as error:
            hunt.stop(error)
            break
        except KeyboardInterrupt:
            hunt.interrupt()
            break
        if not found or only is not None:
            break
    return conclude(hunt, started, progress)


def _one_round(hunt: Hunt, round_seed: int, progress: Progress) -> bool:
    """Run machines until one breaks a rule that is not known yet; say whether one did."""

    def finished(program: AnyProgram) -> None:
        if program.actions:
            try:
                found = hunt.take(hunt.examiner.examine(program))
            except Exception as error:
                raise RoundOver from error
            progress(hunt.outcome)
            if found:
                raise RoundOver(found)
        if hunt.over:
            raise RoundOver

    machine = hunt.examiner.machine(finished)
    test = get_state_machine_test(machine, settings=_round_settings(hunt))
    try:
        seed(round_seed)(test)()
    except RoundOver as end:
        if end.__cause__ is not None:
            raise end.__cause__ from None
        return end.found
    except Unsatisfiable:
        pass  # too few examples for a single program
    return False


def _round_settings(hunt: Hunt) -> settings:
    left = UNTIL_TIME_IS_UP if hunt.limit is None else hunt.limit - hunt.outcome.programs
    return settings(
        settings.get_profile(PROFILE),
        max_examples=left,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.target),
    )
