"""What the answers to one kind of question say of a record: its cuts, its blocks, its order of k, its random words."""
