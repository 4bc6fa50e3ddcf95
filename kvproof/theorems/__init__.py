"""What is proved: the obligations run, and the theorems as numbers of a deployment."""
