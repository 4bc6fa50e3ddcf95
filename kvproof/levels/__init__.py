"""What a search needs of a level: to draw its programs, to examine them and to make them small."""
