"""Where directions come from in which a model's margin may fall."""
