"""Reads the progress of a job step, or an allocation, from the messages of srun and salloc.

The messages of `srun --verbose` and `salloc` are in a file, since the terminal shows only the
output of the program. The file survives the worker, so the next worker can read it.

States of a step: *queued*, until Slurm launches it; *running*; *ended*, when Slurm has reported how
the task ended, or that its node has failed. A step may end without having run.
"""

import contextlib
import os
import re
from typing import Final, NamedTuple

_LAUNCHING: Final = re.compile(
    r"^srun: launching (?:StepId=)?(\d+)\.(\d+) on host ([^ ,]+)", re.MULTILINE
)
_JOB: Final = re.compile(
    r"^srun: (?:jobid |job )(\d+)[ :]|^salloc: (?:Granted|Pending) job allocation (\d+)",
    re.MULTILINE,
)
# With `--verbose`, srun prints its options; this is the one that selects an existing job.
_SHARED: Final = re.compile(r"^srun: jobid +: ", re.MULTILINE)
_STATUS: Final = re.compile(r"task exit notification .*\(status=0x([0-9a-fA-F]+)\)")
_STOPPED: Final = re.compile(
    r"^srun: (?:error: )?(?:Complete |Force Terminated |Job step aborted)", re.MULTILINE
)
_GRANTED: Final = re.compile(
    r"^(?:srun: jobid \d+: nodes\(|salloc: Granted job allocation )", re.MULTILINE
)
_NODE_FAILED: Final = re.compile(r"^srun: (?:error: )?Node failure on ", re.MULTILINE)
# The alternatives without `error` are messages of getopt_long(3).
_ERROR: Final = re.compile(
    r"^(?:srun|salloc): (?:(?:error|fatal): |(?=option |(?:unrecognized|invalid) option ))(.*)",
    re.MULTILINE,
)
# Only the beginning of a long file, which names the step, and its end, which has the exit status,
# are read.
_HEAD_BYTES: Final = 32768
_TAIL_BYTES: Final = 32768


class Progress(NamedTuple):
    """The progress of a step or of an allocation, as the messages report it."""

    job: str | None = None
    """The id of the job; None until Slurm has reported it."""
    step: str | None = None
    """The id of the step, such as `5.0`: the job and a number; None until the step is launched."""
    node: str | None = None
    """The name of the node that the step runs on; None until the step is launched."""
    status: int | None = None
    """The status of the task, as from wait(2); None until Slurm has reported it."""
    is_own: bool = False
    """Whether the job was created for this step or allocation alone, and may be cancelled."""
    is_granted: bool = False
    """Whether the job has its resources. Slurm may still postpone the start of the step."""
    is_stopped: bool = False
    """Whether Slurm may have ended the step, or its job."""
    has_lost_node: bool = False
    """Whether the node has failed."""
    error: str | None = None
    """The first error message; None if there is none."""


def read(path: str) -> Progress:
    """Return the progress that the messages in a file report; `Progress()` if it cannot be read."""
    with contextlib.suppress(OSError):
        return load(path)
    return Progress()


def load(path: str) -> Progress:
    """As `read`, but raise `OSError`."""
    with open(path, "rb") as file:
        text = file.read(_HEAD_BYTES + _TAIL_BYTES)
        if os.fstat(file.fileno()).st_size > len(text):
            head = text[:_HEAD_BYTES]
            file.seek(-_TAIL_BYTES, os.SEEK_END)
            # Drop the incomplete lines where the two pieces meet.
            text = head[: head.rfind(b"\n") + 1] + file.read(_TAIL_BYTES).partition(b"\n")[2]
    return parse(text.decode(errors="replace"))


def parse(text: str) -> Progress:
    """Return the progress that the messages in `text` report."""
    job, launching, status = _JOB.search(text), _LAUNCHING.search(text), _STATUS.search(text)
    error = _ERROR.search(text)
    return Progress(
        job=launching[1] if launching else (job[1] or job[2]) if job else None,
        step=f"{launching[1]}.{launching[2]}" if launching else None,
        node=launching[3] if launching else None,
        status=int(status[1], 16) if status else None,
        is_own=_SHARED.search(text) is None,
        is_granted=_GRANTED.search(text) is not None,
        is_stopped=_STOPPED.search(text) is not None,
        has_lost_node=_NODE_FAILED.search(text) is not None,
        error=error[1] if error else None,
    )
