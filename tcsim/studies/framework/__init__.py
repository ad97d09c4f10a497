"""What every study stands on: cells, claims, runs that can stop and go on, files, figures' style."""
