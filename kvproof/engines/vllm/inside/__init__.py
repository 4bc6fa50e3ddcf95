"""What runs in the engine's own interpreter, together with the model and the rules."""
