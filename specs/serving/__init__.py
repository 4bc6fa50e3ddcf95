"""Drawing and minimising programs of whole engine steps."""
