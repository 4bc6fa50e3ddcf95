"""Every step of the running model is a step of the transition system, or several, or none.

``log`` writes down what the model did, in order; ``witnesses`` turns it into actions of the system,
each with its slot, block and page; ``simulation`` takes these actions, guard by guard, and compares
the state that comes out with the one that the model is in. The witnesses prove nothing by
themselves: a wrong one is refused by a guard, or seen in the comparison.

The differences, all of them abstractions:

- Host pages lose their keys in an allocation before its pops, in the system after them.
- Every write of an ended request makes its page durable in the system, also in a dialect that makes
  no use of it.
- A slot's page is what the request's tokens come to, also while they are not yet sampled.
- What a hit found on the host counts as published by the request too.
- ``Hold`` is an allocation of a request that ends at once and keeps its blocks.
- A refused allocation, an arrival, a step without residency work are no steps of the system.
- External imports are actions of the system that the model has not.
- Relations that a snapshot shows in part, or not, are listed in ``simulation``.
"""
