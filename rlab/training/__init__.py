"""Training of direction priors, and the attack as an environment for other libraries."""
