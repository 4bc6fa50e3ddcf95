"""The abstract machine in Promela and Murphi, and who runs it."""
