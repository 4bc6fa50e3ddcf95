"""Search: draw programs, examine them, and make small what breaks a rule."""
