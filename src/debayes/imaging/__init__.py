"""Arrays and physics: colour filter arrays, colour, noise. No networks, no files."""
