"""Moves of running jobs: planned aside, made at the end of an iteration, through the job's checkpoint.

The rules, in full:

- A plan names the version of the placement that it was made for; if anybody was placed or has left since, or one of its
  jobs cannot be moved (it keeps no checkpoints, was moved as often as may be, is new where it is), nothing of it is
  done and the answer says why.
- A planned move changes nothing until its job asks for its next rollout, holds no permit, and all of its ranks that
  save checkpoints have said that the iteration before is saved. There the move is weighed once more, as things are by
  then: if its place is not to be had any more, would break a promise or saves nothing, the job stays.
- A job that waits for that rollout already when its move is planned, or its save is heard, leaves at once if it can.
- A job that has not saved waits for its next save, if that is expected soon (see ``saving``); then its move is dropped.
  The next plan may propose it again, three times an attempt. Who could have left, and waits for others, has until after
  its next save again.
- Then the attempt is stopped on all its nodes. While it is leaving nobody joins the group that it leaves or the one
  that it goes to, so that its old place is there for it whatever happens to the new one.
- Once all nodes have confirmed (kill before grant) it is placed before anybody in the queue, as its next attempt: as
  planned, or else wherever the policy places it, or it is in the queue as others are. A move is no retry.
- A move that makes way for a waiting job is one to the queue, planned behind the door (see ``sharing.preemption``).
- A job whose next rollout may run beside training has two iterations under way. From the plan on no rollout is granted
  that would run beside a training, so that it comes to the end of an iteration with nothing under way. It goes then
  if it has saved the iteration before it pushes the weights; if not, the move is dropped, since it would go on dry.
- Moves that pay only together (see ``joint_moves``) are weighed together, and each is made at the first boundary of its
  job at which its place is to be had.
- A job that ends or fails before, or is cancelled, is not moved.
"""

from collections.abc import Iterator

import msgspec

from weaverl.domain.commands import AnyCommand, DropMove, PlanMove, RefusePlan
from weaverl.domain.events import CheckpointWritten, PermitRequested, PlanProposed
from weaverl.domain.groups import Move
from weaverl.domain.jobs import JobState
from weaverl.scheduling import joint_moves, lifecycle, placement, saving
from weaverl.scheduling.movable import refusal
from weaverl.scheduling.progress import fill_us
from weaverl.scheduling.rotation_state import ROLLOUT
from weaverl.scheduling.sharing import preemption
from weaverl.scheduling.state import ClusterState, JobRecord
from weaverl.scheduling.trial_moves import decide_on, option_of, remaining_spec, without_record


def observe_start(record: JobRecord, event: PermitRequested) -> None:
    """Fold the first rollout that an attempt asks for: its cold start is over."""
    assert record.admitted_at is not None
    record.started_at, record.start_us = event.at, event.at - record.admitted_at + fill_us(record)
    record.first_iteration = event.iteration


def observe_boundary(record: JobRecord, event: PermitRequested) -> None:
    """Fold that a job that is to move asks for its next rollout: if it waits for others here, it has saved in time."""
    if saving.is_saved(record, event.iteration):
        saving.expect(record)


def observe_checkpoint(state: ClusterState, event: CheckpointWritten) -> None:
    """Fold that a rank could go on after an iteration."""
    record = lifecycle.current(state, event.rank.job, event.rank.attempt)
    if record is not None:
        saving.observe(record, event)


def fold_plan(state: ClusterState, command: PlanMove) -> None:
    """Fold that a job is to move."""
    state.moves[command.job] = command.move
    state.jobs[command.job].stays_because = ""
    saving.expect(state.jobs[command.job])
    _expect_anew(state, command.move)


def fold_drop(state: ClusterState, command: DropMove) -> None:
    """Fold that it stays."""
    move = state.moves.pop(command.job, None)
    state.jobs[command.job].stays_because = command.reason
    state.jobs[command.job].unsaved += command.unsaved
    if move is not None:
        _expect_anew(state, move)


def _expect_anew(state: ClusterState, move: Move) -> None:
    """Who makes way for another leaves sooner, or later, than was expected of its group."""
    group = state.jobs[move.job].group
    if move.paused_for and group is not None:
        state.changed.groups[group] = None


def react_plan(state: ClusterState, event: PlanProposed) -> Iterator[AnyCommand]:
    """Take a plan, or say why not."""
    reasons = [refusal(state, move.job, move.attempt, rescues=bool(move.rescues)) for move in event.moves]
    if event.base_version != state.version:
        reasons = [f"it was made for placement {event.base_version}, which is {state.version} by now"]
    if refused := "; ".join(filter(None, reasons)):
        yield RefusePlan(base_version=event.base_version, reason=refused)
        return
    for move in event.moves:
        yield PlanMove(job=move.job, move=move)


def at_boundary(state: ClusterState, record: JobRecord, event: PermitRequested) -> Iterator[AnyCommand]:
    """A job that is to move and holds no permit asks for its next rollout: it leaves, or stays for good reason."""
    if record.ending is not None or event.phase is not ROLLOUT or event.iteration != record.iterations_done:
        return
    move = state.moves[event.job]
    if not saving.is_saved(record, event.iteration):
        yield from _unsaved(state, record, move, event.iteration)
        return
    if move.paused_for:
        yield from preemption.leave(state, record, move, event.iteration - 1)
        return
    if not move.is_certain:
        yield from _with_others(state, record, move, event.iteration)
        return
    option = option_of(state, without_record(state, record), record, move)
    if isinstance(option, str):
        yield DropMove(job=event.job, attempt=event.attempt, reason=option)
    elif reason := _pointless(state, move, option.saving_usd):
        yield DropMove(job=event.job, attempt=event.attempt, reason=reason)
    else:
        yield from _leave(record, msgspec.structs.replace(move, saving_usd=option.saving_usd), event.iteration)


def _with_others(state: ClusterState, record: JobRecord, move: Move, iteration: int) -> Iterator[AnyCommand]:
    """A job that moves together with others: it leaves if its place is to be had, or goes on for an iteration."""
    moves = joint_moves.all_of(state, move)
    if any(state.jobs[one.job].ending is not None for one in moves) or joint_moves.is_closed(state, move):
        return
    joint, now = joint_moves.made(state, moves), joint_moves.option_now(state, move)
    if all(one.job != move.job for one in joint.moves):
        yield DropMove(job=move.job, attempt=move.attempt, reason="its place is not to be had any more")
    elif joint.saving_usd <= 0.0:
        yield DropMove(job=move.job, attempt=move.attempt, reason="it would save nothing any more")
    elif now is not None:
        settled = msgspec.structs.replace(now[0], saving_usd=joint.saving_usd)
        yield PlanMove(job=move.job, move=settled)
        yield from _leave(record, settled, iteration)


def _leave(record: JobRecord, move: Move, iteration: int) -> Iterator[AnyCommand]:
    reason = f"moves to {destination(move)} after iteration {iteration - 1}, to {purpose(move)}"
    yield from lifecycle.end(record, JobState.QUEUED, reason)


def _unsaved(state: ClusterState, record: JobRecord, move: Move, iteration: int) -> Iterator[AnyCommand]:
    """The job cannot leave here: it waits for its next save, or stays, and others are asked to make way."""
    if not saving.is_known(record, iteration) or saving.waits(record, iteration):
        return
    reason = f"it has not saved iteration {iteration - 1}"
    yield DropMove(job=move.job, attempt=move.attempt, reason=reason, unsaved=True)
    if move.paused_for and state.cluster.sharing is not None:
        yield from preemption.make_way(state, state.cluster.sharing)


def _pointless(state: ClusterState, move: Move, saving_usd: float) -> str:
    """Why a planned move is for nothing by now, or an empty string."""
    if move.makes_room_for:
        waiting = state.jobs.get(move.makes_room_for)
        waits = waiting is not None and waiting.state is JobState.QUEUED
        return "" if waits else f"{move.makes_room_for} waits no more"
    return "it would save nothing any more" if saving_usd <= 0.0 and not move.rescues else ""


def destination(move: Move) -> str:
    """Where a move leads, for people."""
    if move.paused_for:
        return "the queue"
    if move.joins:
        return f"the group that {move.joins} opens"
    return f"group {move.group}" if move.group else "a group of its own"


def purpose(move: Move) -> str:
    """What a move is for, for people."""
    if move.paused_for:
        return f"let {move.paused_for} start"
    if move.makes_room_for:
        return f"make room for {move.makes_room_for}"
    if move.rescues:
        return f"keep the promise of {move.rescues}"
    others = [job for job in move.together if job != move.job]
    return f"save ${move.saving_usd:.2f}" + (f" together with {', '.join(others)}" if others else "")


def place_moved(state: ClusterState, record: JobRecord) -> Iterator[AnyCommand]:
    """Nothing of the attempt is left: the next one begins where it was planned, wherever the policy says, or waits."""
    decision = decide_on(state, record, state.moves[record.spec.name])
    if decision.chosen is None:
        decision = placement.choose(state, remaining_spec(record))
    if decision.chosen is not None:
        yield from placement.admit(state, record, decision)
    else:
        reason = "its place was gone when it had left, and nothing else fitted it"
        yield DropMove(job=record.spec.name, attempt=record.attempt, reason=reason)
