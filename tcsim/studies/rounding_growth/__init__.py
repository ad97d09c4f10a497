"""Why double-fp16 on tensor cores loses to fp32: the growth of rounding errors with k, taken apart.

Fasi, Higham, Lopez, Mary and Mikaitis, Matrix multiplication in multiword arithmetic, SIAM J. Sci. Comput. 2022,
sections 2, 3, 4.2 and 4.3. A is 16 x k and B k x 16, their entries exact sums of two fp16 numbers, drawn from (0, 1] or
(-0.5, 0.5]. Each method's error is the maximum over the outputs of |C - C^| / (|A||B|), against the exact product, for
five draws of the matrices.
"""

from tcsim.studies.framework.base import Study
from tcsim.studies.rounding_growth.cells import OPTIONS, bound, cells, compute, dataset, slope, slopes, weight
from tcsim.studies.rounding_growth.claims import claims
from tcsim.studies.rounding_growth.figures import figures
from tcsim.studies.rounding_growth.table import table

__all__ = ["STUDY", "bound", "slope", "slopes"]

STUDY = Study(
    name="rounding-growth",
    title="Growth of rounding errors in double-fp16 matrix products on tensor cores",
    reproduces="Fasi, Higham, Lopez, Mary, Mikaitis 2022: Figures 3.1 and 4.3, Table 2.1, and Figure 4.2 by simulation",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=OPTIONS,
    weight=weight,
)
