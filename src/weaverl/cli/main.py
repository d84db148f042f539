"""`weaverl`: one command for everything. Exit codes: 0 done, 1 the cluster failed, 2 what was given is wrong."""

import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from weaverl.cli import (
    advise,
    bench,
    cluster,
    daemons,
    estimate,
    jobs,
    measure,
    pictures,
    reproduce,
    simulate,
    trace,
    whatif,
)
from weaverl.errors import ClusterError, UsageError
from weaverl.version import VERSION

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

app = typer.Typer(
    help="Co-schedules several synchronous RL post-training jobs on a rollout pool and a training pool.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for module in (cluster, jobs, pictures, measure, estimate, advise, whatif, bench, simulate, reproduce, trace, daemons):
    module.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"weaverl {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """What comes before the command."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; every error that we foresee is one line."""
    code = 0
    _open_closed_streams()
    try:
        code = app(arguments, prog_name="weaverl", standalone_mode=False) or 0  # what a command returns: nothing
        print(end="", flush=True)  # a reader that has gone, or a full disk, shows now
    except TyperException as error:
        sys.exit(_misused(error))
    except typer.Abort:
        sys.exit(_complain("stopped before anything was done: the answer asked for did not come", 1))
    except UsageError as error:
        sys.exit(_complain(str(error), 2))
    except ClusterError as error:
        sys.exit(_complain(str(error), 1))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stdout = None  # the reader has gone; what is left in the buffer has nobody to go to
    except OSError as error:
        sys.exit(_complain_of_file(error))
    sys.exit(code)


def _open_closed_streams() -> None:
    """Have standard streams that our starter closed: what is written to the output fails, and nobody reads the errors.

    Python leaves None there, and the next file that is opened would get the number that libraries print to.
    """
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _misused(error: TyperException) -> int:
    """An option or argument that cannot be, in one line; where the help was shown instead, nothing is left to say."""
    problem = " ".join(error.format_message().split()).removesuffix(".") + _seen(error.__cause__)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "weaverl"
    return _complain(f"{problem}; see `{command} --help`", error.exit_code) if problem else error.exit_code


def _seen(cause: BaseException | None) -> str:
    """The value that a check of pydantic refused; its message says only what it should have been."""
    from pydantic import ValidationError

    return f", got {cause.errors()[0]['input']!r}" if isinstance(cause, ValidationError) else ""


def _complain_of_file(error: OSError) -> int:
    """A path that cannot be used was given wrong; a disk that is full, or an output that is closed, was not."""
    if error.errno == errno.EBADF:  # of all that is written, only what was closed before we began
        sys.stdout = None
        return _complain(f"standard output is closed: send it to a file, or to {os.devnull}", 1)
    problem = f"{error.filename or _without_name()}: {error.strerror}"
    if error.errno in _NO_ROOM:
        return _complain(f"{problem}; make room there, or write to another disk", 1)
    return _complain(f"{problem}; give a path that can be used", 2)


def _without_name() -> str:
    """What failed without a name: standard output if it still does, and then what it holds is dropped."""
    try:
        print(end="", flush=True)
    except OSError:
        sys.stdout = None
        return "standard output"
    return "a file"


def _complain(text: str, code: int) -> int:
    print(f"weaverl: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
