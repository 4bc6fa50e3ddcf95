"""Drawing and shrinking programs of the manager level."""
