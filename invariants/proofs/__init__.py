"""Theorems about the rules that the running model uses, for every size.

``obligation`` says what a theorem on integers is, and proves it; ``arithmetic`` is its solver;
``admission`` and ``alone_claims`` state the theorems (``catalogue``: all of them), ``mutants`` the
faults that they must see; ``alone`` is the least pool of a lone request; ``predicted`` holds the
arithmetic against allocators.
"""
