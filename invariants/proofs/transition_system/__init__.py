"""The block pool, residency and publication as a transition system, for any number of blocks.

The invariant is first-order, over blocks, slots and pages, with four integer counters; quantifiers
alternate from blocks to slots only, so that Z3 decides every query, whatever the sizes.
``obligations.prove`` runs all of them, ``invariant`` says what is kept, ``actions`` what can
happen, ``interpretation`` reads a state of the running model as a state of this system.

**The one assumption that is not first-order**: the counter of a finite set that has a member is at
least 1 (in the queue => free >= 1; likewise for the blocks of a hit that are still to be touched,
and for the copies that are still to be pinned). The counter obligations show that every action
moves each counter exactly with its set; that the counter is then the size of the set, and a size
of a non-empty set at least 1, no first-order formula can say.

What is abstracted away: the host pool (its pages are ``valid``, ``durable``, ``published``, never
short); tokens and chunks (a page is written, then complete); contents (readers of a block agree on
its page: what was *written* there is the business of the ghost contents); the scheduler's order
(actions outside an allocation may run whenever no hit is being touched). Loops are single actions:
an allocation is ``begin``, touches, pops, ``finish``; a release is ``release`` and then one
``part`` or ``give_back`` for each block, at any later time, which covers deferred releases.
"""
