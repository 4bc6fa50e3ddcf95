"""All human wording: of findings and states, and of the stages of the gate."""
