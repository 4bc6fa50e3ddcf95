"""All human wording of findings."""
