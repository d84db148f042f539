"""The job files that the README submits are woven on the cluster file that it brings up."""

from pathlib import Path

from weaverl.config.cluster_file import load_cluster
from weaverl.config.job_file import load_job
from weaverl.domain.events import AgentReported, ControllerStarted, JobSubmitted
from weaverl.scheduling.scheduler import Scheduler

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_two_example_jobs_share_a_group_on_the_laptop():
    cluster = load_cluster(EXAMPLES / "clusters" / "laptop.yaml")
    scheduler = Scheduler(cluster)
    scheduler.handle(ControllerStarted(epoch=1, at=1))
    for place, node in enumerate(cluster.nodes):
        scheduler.handle(AgentReported(epoch=1, node=node, at=2 + place))
    for name in ("a", "b"):
        scheduler.handle(JobSubmitted(spec=load_job(EXAMPLES / "grpo" / f"job-{name}.yaml"), at=10))
    assert [group.members for group in scheduler.state.groups.values()] == [("counting-a", "counting-b")]
