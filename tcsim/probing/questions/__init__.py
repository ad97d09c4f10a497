"""What a black box is asked: inputs that show one part of a record at a time."""
