"""What people ask, as functions: compare two units, check vectors, draw vectors, open a block. The command line calls them."""
