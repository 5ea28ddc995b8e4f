"""From camera raws and mosaic files to pictures."""
