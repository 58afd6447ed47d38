"""Cancellation of requests while they are computed."""

import time

from clearhead.errors import RequestCancelledError


class Cancellation:
    """Cancel flag and deadline of one request.

    Any thread may set the flag. Searches read it after every step (those of the core without the interpreter lock). A
    cancelled request is removed from its batch and has no hypotheses.
    """

    def __init__(self, deadline: float = 0.0) -> None:
        """`deadline`: seconds of `time.monotonic()`; 0: none."""
        self.deadline = deadline
        self.flag = bytearray(1)
        """One byte, which the core reads in place."""

    def cancel(self) -> None:
        """Set the flag; it stays set."""
        self.flag[0] = 1

    @property
    def is_cancelled(self) -> bool:
        """Whether the flag is set or the deadline has passed."""
        return self.flag[0] != 0 or 0 < self.deadline < time.monotonic()

    def raise_if_cancelled(self) -> None:
        """Raise RequestCancelledError if the request is cancelled."""
        if self.is_cancelled:
            raise RequestCancelledError("the request was cancelled before it was answered")
