"""All theorems on admission and progress, in the order in which they build on each other."""

from invariants.proofs import alone_claims, bounds
from invariants.proofs.admission import table
from invariants.proofs.obligation import Obligation

OBLIGATIONS: tuple[Obligation, ...] = (
    *table.OBLIGATIONS,
    *alone_claims.OBLIGATIONS,
    *bounds.OBLIGATIONS,
)
