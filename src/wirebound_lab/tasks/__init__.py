"""What can be trained: data, model, loss and measures of each task."""
