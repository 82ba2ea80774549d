"""What is said between the parts: resources, names, annotations, states and reasons. Values only."""
