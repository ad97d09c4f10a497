"""The compiled loops behind codes and rounding."""
