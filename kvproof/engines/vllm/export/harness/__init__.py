"""What exported files are composed of: all of it runs in the engine's interpreter."""
