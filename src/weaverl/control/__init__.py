"""The control plane: the controller drives the scheduler, an agent on each node starts and stops processes.

Neither imports torch or ray. The controller is the only writer of the log; everything it decides and everything
that follows from it (commands in inboxes, position in the event stream) is one commit, so that a crash between any
two instructions repeats nothing and loses nothing.
"""
