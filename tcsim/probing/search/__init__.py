"""Candidates, and their elimination: records simulated on what was asked, changed part by part, refuted and challenged."""
