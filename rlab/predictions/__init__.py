"""What a model predicts, and what is true, as one row of numbers per sample: classes, boxes, a map or numbers."""
