"""Load samples from common file formats into a `Batch`."""

from rlab.data.batch import Batch
from rlab.data.embedded import embedded
from rlab.data.load import DataOptions, load
from rlab.data.take import Take

__all__ = ["Batch", "DataOptions", "Take", "embedded", "load"]
