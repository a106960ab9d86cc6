"""Keep a privacy budget for several releases from the same data, on disk.

A `Budget` has a total: rho of zero-concentrated differential privacy, or (epsilon, delta).
`Budget.release` records the cost of a release, which is called its charge, and then makes the
release. A release whose cost does not fit into the total is refused with `BudgetExceeded`.

A user must know three things:

1. An error in public matters (the mechanism, the type or the shape of the data) costs nothing. The
   charge is recorded before any value of the data is read. It remains if the release then fails,
   for example at a NaN, because such an error says something about the data. Type and shape of a
   list, an iterator or a function are known only when they are read, and then their errors cost, too.
2. The charges are added up to a total (epsilon, delta) by one rule: "gaussian", "zcdp", "basic" or
   "planned". The rule must be public before the first release. With the first three rules, every
   release may be chosen after seeing the releases before it; with "planned", all releases must be
   chosen before the first one is made.
3. With a path, the charges are kept in a journal, a file that survives a crash and that several
   processes can share. If somebody replaces the file by an older copy of it, only an open budget that
   has seen a later charge notices it.

The Notes of `Budget` describe the rules, prove that they keep the promised privacy, and explain the
rounding.
"""

from egm._budget.budget import Budget
from egm._budget.journal import JournalError
from egm._budget.rules import BudgetExceeded, Charge, Loss

__all__ = ["Budget", "BudgetExceeded", "Charge", "JournalError", "Loss"]
