"""What stands in for images that cannot be pulled, under their tags: see `images`."""
