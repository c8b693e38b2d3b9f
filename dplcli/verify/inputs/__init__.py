"""Inputs that a model accepts: given or made up, and what it gives for them.

- :mod:`~dplcli.verify.inputs.files`: files of arrays;
- :mod:`~dplcli.verify.inputs.given`: inputs that the user has;
- :mod:`~dplcli.verify.inputs.relations`: what the graph says of the sizes of inputs;
- :mod:`~dplcli.verify.inputs.sizes`: plans of sizes, tried in turn;
- :mod:`~dplcli.verify.inputs.draws`: the numbers;
- :mod:`~dplcli.verify.inputs.attempts`: runs on one after the other, until one tells enough;
- :mod:`~dplcli.verify.inputs.resizing`: other sizes, for a case each;
- :mod:`~dplcli.verify.inputs.stimulus`: what a model is fed in all cases;
- :mod:`~dplcli.verify.inputs.reference`: the original as it runs.
"""

from dplcli.verify.inputs.files import ARCHIVE_ERRORS, check_saving, write_arrays
from dplcli.verify.inputs.reference import (
    Reference,
    candidate_source,
    fed_reference,
    open_reference,
    save_outputs,
)
from dplcli.verify.inputs.sizes import NO_SIZES, size_plans
from dplcli.verify.inputs.stimulus import find_stimulus, save_inputs
