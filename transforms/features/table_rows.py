"""Maps the rows of an embedding table to the rows of a former table that initialise them.

Does not import TensorFlow, which training on JAX does not need.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

NONE = -1  # no such row

Rows = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class SourceRows:
    """For each row of a table, the row of the former table that can initialise it.

    Attributes:
        same: The former row of the same value; NONE if there is none.
        unknown: The former row of the column's out-of-vocabulary value; NONE if there is no such column.
    """

    same: Rows
    unknown: Rows

    def taken(
        self, initial: npt.NDArray[np.float32], former: npt.NDArray[np.float32], or_unknown: bool
    ) -> npt.NDArray[np.float32]:
        """Returns the table with rows copied from the former table.

        Args:
            initial: [rows, width]; a row is kept if the former table has no row for it.
            former: [former rows, width].
            or_unknown: Whether new values take the row of their column's out-of-vocabulary value.
        """
        rows = np.where((self.same == NONE) & or_unknown, self.unknown, self.same)
        return np.where((rows == NONE)[:, None], initial, former[rows])
