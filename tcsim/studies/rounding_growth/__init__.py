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
    captions={
        "roundings-16-blocks": (
            "Error of double-fp16 (Algorithm 4.1) against k, k split in 16 blocks, entries from (0, 1], with each rounding of"
            " a unit exchanged: of aligned terms, of the result (“final”), of both (“throughout”), and with nothing lost in "
            "alignment. Large open markers lie under curves that coincide. Medians of the draws; bands from the least to the "
            "largest. Grey: growth like k and √k."
        ),
        "roundings-recursive": "The same with k walked in one chain.",
        "figure-3.1-positive": (
            "Every product and sum rounded to nearest (a block of one product), entries from (0, 1], with the bounds of Table"
            " 2.1. fp32, double-fp16 and its four-product form lie on one another: open markers below, filled ones on top. "
            "The dashed line is where the paper sees fp16 meet double-fp16. Medians of the draws; bands from the least to the"
            " largest."
        ),
        "figure-3.1-symmetric": (
            "Every product and sum rounded to nearest (a block of one product), entries from (-0.5, 0.5], with the bounds of "
            "Table 2.1. fp32, double-fp16 and its four-product form lie on one another: open markers below, filled ones on "
            "top. Medians of the draws; bands from the least to the largest."
        ),
        "figure-4.2": (
            "fp16 (dashed, open markers; they coincide on signed data) and double-fp16 on the units as built, k split in 16 "
            "blocks, beside fp32 on CUDA cores. Medians of the draws; bands from the least to the largest. Grey: growth like "
            "k and √k."
        ),
        "figure-4.3": (
            "The first unit as built, truncating (left), and rounding aligned terms and results to nearest (right): what "
            "truncation costs, and its cure. k split in 16 blocks, entries from (0, 1]. Medians of the draws; bands from the "
            "least to the largest. Grey: growth like k and √k."
        ),
        "overview-16-blocks": (
            "Four roundings of the units (columns) on positive and on signed data (rows), k split in 16 blocks: fp16 dashed "
            "with open markers where it was computed, double-fp16 solid, fp32 dotted. Medians of the draws; bands from the "
            "least to the largest."
        ),
        "overview-recursive": (
            "Four roundings of the units (columns) on positive and on signed data (rows), k walked in one chain: fp16 dashed "
            "with open markers where it was computed, double-fp16 solid, fp32 dotted. Medians of the draws; bands from the "
            "least to the largest."
        ),
        "table-2.1": (
            "The five rows of Table 2.1 against k, in one chain, entries from (0, 1]: in software with every operation "
            "rounded to nearest, and on the units that have the formats. Dotted, in the colour of each: its bound; that of "
            "double-fp16 is also triple-bf16's. Medians of the draws; bands from the least to the largest."
        ),
        "drift": (
            "Left: error of double-fp16 divided by k, which is constant where errors drift, with the closed form (2⁻²³/3)·κ "
            "dotted. Right: the share of the error that is left when a rounding is exchanged; black: least to largest of the "
            "draws."
        ),
    },
    table=table,
    options=OPTIONS,
    weight=weight,
)
