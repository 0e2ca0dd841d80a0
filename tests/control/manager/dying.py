"""`python -m tests.control.manager.dying ACTION ...`: `metromq ...` whose manager is killed when it begins such a step.

That it has begun is on disk, and nothing of the step is done.
"""

import os
import signal
import sys

from metromq.cli.main import main
from metromq.control.core.records import PlanAccepted, Record, StepBegun
from metromq.control.manager import manager as managing
from metromq.control.manager.record_log import RecordLog


class DyingLog(RecordLog):
    deadly = ""

    def append(self, records: list[Record]) -> None:
        super().append(records)
        for record in records:
            change = record.change
            if isinstance(change, StepBegun) and self._action(change) == self.deadly:
                os.kill(os.getpid(), signal.SIGKILL)

    def _action(self, begun: StepBegun) -> str:
        changes = [record.change for record in self.read()]
        plans = {change.plan: change.what for change in changes if isinstance(change, PlanAccepted)}
        return plans[begun.plan].steps[begun.step].action


if __name__ == "__main__":
    DyingLog.deadly = sys.argv.pop(1)
    managing.RecordLog = DyingLog  # type: ignore[attr-defined]
    main()
