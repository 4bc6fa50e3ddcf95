"""All theorems on admission and progress, in the order in which they build on each other."""

from invariants.proofs import admission, alone_claims, bounds
from invariants.proofs.obligation import Obligation

OBLIGATIONS: tuple[Obligation, ...] = (
    *admission.OBLIGATIONS,
    *alone_claims.OBLIGATIONS,
    *bounds.OBLIGATIONS,
)
