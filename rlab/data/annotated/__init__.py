"""Images with boxes (COCO, Pascal VOC, YOLO) or with a class for each pixel (masks)."""
