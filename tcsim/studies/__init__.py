"""The studies, by name and module; each module declares a `STUDY` (see `base`)."""

STUDIES = {
    "rounding-growth": "rounding_growth",
}
