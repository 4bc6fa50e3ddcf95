"""Drawing and shrinking programs of the scheduler level."""
