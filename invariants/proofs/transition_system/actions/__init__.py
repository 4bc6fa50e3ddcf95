"""The actions of the transition system, by what they are part of."""
