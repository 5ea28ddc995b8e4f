"""What any program needs: errors and exit codes, the log, atomic files, cores, memory."""
