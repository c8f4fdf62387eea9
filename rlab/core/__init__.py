"""The kernel: geometry, goals, distances, one step of the environment, and the attack as a loop over it."""
