"""trainer.task with a progress line every second, so that a short window can be measured.

python -m cloud.local --module=benchmarks.tfps_task …
"""

import runpy

from trainer import progress_display

LINE_SECONDS = 1.0

if __name__ == "__main__":
    progress_display.LINE_SECONDS = LINE_SECONDS
    runpy.run_module("trainer.task", run_name="__main__", alter_sys=True)
