"""How agents and direction priors are trained."""
