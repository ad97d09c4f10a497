"""Matrix products from several tensor-core products: multiword, FABsum, Ozaki; their bounds, and advice."""
