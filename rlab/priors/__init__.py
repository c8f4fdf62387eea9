"""Where directions come from in which a model's margin may fall: nothing, a trained network, or models the user has."""
