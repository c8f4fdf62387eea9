"""Load samples from common file formats into a `Batch`."""
