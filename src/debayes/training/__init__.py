"""From photographs and a recipe to a weight file."""
