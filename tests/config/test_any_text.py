from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from weaverl.config import cluster_file, job_file
from weaverl.config.cluster_file import load_cluster, parse_cluster
from weaverl.config.job_file import load_job, parse_job
from weaverl.domain.cluster import Cluster
from weaverl.domain.jobs import JobSpec
from weaverl.errors import SpecError

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "clusters").glob("*.yaml"))
KEYS = sorted({*job_file.JOB_KEYS, *job_file.PROFILE_KEYS, *job_file.ROLE_KEYS, *cluster_file.NODE_KEYS, "pools", "<<"})
SCALARS = [
    "",
    "~",
    "1",
    "1e1",
    "-1",
    "nan",
    ".inf",
    "no",
    "22:10",
    "64Gi",
    "1.5s",
    "500m",
    "*a",
    "&a b",
    "!!int 1",
    "'",
    '"\\0"',
    "|",
    "a b",
]
JOB = (
    "name: a\nslo: 1\ngpus: {rollout: 1, training: 1}\nhost_memory: {rollout: 1Mi, training: 1Mi}\n"
    "profile: {rollout_max: 1s, rollout_mean: 1s, training: 1s}\n"
    "roles: {rollout: {command: a}, training: {command: [b, c]}}\nenvironment: {A: b}\ndeadline: 1h\n"
)


def _flow(children):
    mappings = st.dictionaries(st.sampled_from(KEYS), children, max_size=4)
    return st.one_of(
        mappings.map(lambda entries: "{" + ", ".join(f"{key}: {value}" for key, value in entries.items()) + "}"),
        st.lists(children, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
    )


values = st.recursive(st.one_of(st.sampled_from(SCALARS), st.text(max_size=8)), _flow, max_leaves=8)
lines = st.lists(st.tuples(st.sampled_from(KEYS), values), max_size=6).map(
    lambda pairs: "\n".join(f"{key}: {value}" for key, value in pairs)
)


def spoilt(content):
    """The content with one stretch replaced by another text."""
    cut = st.tuples(
        st.integers(0, len(content)), st.integers(0, 12), st.one_of(st.sampled_from(SCALARS), st.text(max_size=6))
    )
    return cut.map(lambda at: content[: at[0]] + at[2] + content[at[0] + at[1] :])


def assert_spec_or_one_line(read, kind):
    try:
        assert isinstance(read(), kind)
    except SpecError as error:
        assert len(str(error).splitlines()) == 1
        assert len(str(error)) < 1000


@given(st.one_of(st.text(), lines, spoilt(JOB)))
@settings(max_examples=150, deadline=None)
def test_any_text_gives_a_job_or_a_spec_error(content):
    assert_spec_or_one_line(lambda: parse_job(content, directory=Path("/")), JobSpec)


@given(st.one_of(st.text(), lines, spoilt(EXAMPLES[0].read_text())))
@settings(max_examples=150, deadline=None)
def test_any_text_gives_a_cluster_or_a_spec_error(content):
    assert_spec_or_one_line(lambda: parse_cluster(content), Cluster)


@given(st.binary())
@settings(max_examples=50, deadline=None)
def test_any_bytes_give_a_spec_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    assert_spec_or_one_line(lambda: load_job(path), JobSpec)
    assert_spec_or_one_line(lambda: load_cluster(path), Cluster)
