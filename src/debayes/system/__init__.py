"""What any program needs: atomic files, memory."""
