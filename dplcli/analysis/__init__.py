"""What is the same in graphs, what belongs together, and how a part is cut out."""
