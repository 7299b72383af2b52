"""What every room uses: errors, printing, files, processes."""
