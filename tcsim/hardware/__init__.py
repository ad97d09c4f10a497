"""Units as data: the Unit record, one `Gpu` record a GPU, the table's rows by generation, and the look-up over them."""

from tcsim.hardware.lookup import GPUS, UNITS, as_unit, unit, units

__all__ = ["GPUS", "UNITS", "as_unit", "unit", "units"]
