"""The definition of stages and pipelines: everything that is refused when it is declared."""

import pytest

from mainstay.core.pipeline.definition import PipelineDefinition, StageDefinition
from mainstay.errors import PolicyError
from tests.core.pipeline.test_rules import GOOD


def stage(name="poll", function=print, **fields):
    given = {
        "after": (), "idempotency": "idempotent", "idempotency_key": None, "policy": GOOD,
        "datasets": (), "care_labels": (), "masking": None, "kind": None, "connect": None,
    }  # fmt: skip
    return StageDefinition(name, function, **(given | fields))


def problems(make):
    with pytest.raises(PolicyError) as caught:
        make()
    return [problem.field for problem in caught.value.problems]


async def wait():
    """An async stage."""


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"name": "a b"}, ["name"]),
        ({"name": "a/b"}, ["name"]),
        ({"function": 5}, ["function"]),
        ({"kind": "filter"}, ["kind"]),
        ({"masking": -1}, ["masking"]),
        ({"after": 7}, ["after"]),
        ({"after": [""]}, ["after"]),
        ({"datasets": [None], "care_labels": [5]}, ["care_labels", "datasets"]),
        ({"kind": "source", "after": "x"}, ["after"]),
        ({"kind": "sink"}, ["after"]),
        ({"connect": print}, ["connect"]),
        ({"idempotency": "outbox"}, ["connect"]),
    ],
)
def test_stages_that_are_refused(fields, wrong):
    """All problems at once, by the names of the fields."""
    assert problems(lambda: stage(**fields)) == wrong


def test_names_may_be_stages():
    """`after` takes names, one name, or the stages themselves."""
    poll = stage()
    assert stage("a", after=poll).after == ("poll",)
    assert stage("a", after=[poll, "b"]).after == ("poll", "b")
    assert stage("a", datasets=lambda ctx: ["d"]).datasets is not None


def test_a_pipeline_is_ordered():
    """Each stage after those it needs; its shape as text."""
    made = PipelineDefinition("etl", [stage("load", after="poll"), stage("poll", wait)])
    assert [each.name for each in made.stages] == ["poll", "load"]
    assert made.shape == "load<poll;poll"
    assert made.is_async
    assert made.unsafe == ()
    once = stage("pay", idempotency="unsafe", policy=GOOD.replace(max_attempts=1))
    made = PipelineDefinition("etl", [once])
    assert (made.unsafe, made.is_async) == (("pay",), False)


def test_pipelines_that_are_refused():
    """No stages, one name twice, a stage behind a sink, a wrong name."""
    assert problems(lambda: PipelineDefinition("etl", [])) == ["stages"]
    assert problems(lambda: PipelineDefinition("e/t", [stage()])) == ["pipeline_id"]
    assert problems(lambda: PipelineDefinition("etl", [stage(), stage()])) == ["stages"]
    sink = stage("load", after="poll", kind="sink")
    more = stage("more", after=["load", "x"])
    assert problems(lambda: PipelineDefinition("etl", [stage(), sink, more])) == ["after"]


def rows():
    yield 1


@pytest.mark.parametrize("function", [rows, 7])
def test_what_is_no_function_of_a_stage(function):
    """A generator, of which a call runs nothing."""
    assert problems(lambda: stage(function=function)) == ["function"]


@pytest.mark.parametrize("key", ["{date}", "{", "{}", "{run_id.x}", 7])
def test_fields_of_a_key(key):
    """Those that nothing fills in are refused when the stage is declared."""
    wrong = {"idempotency": "keyed", "idempotency_key": key}
    assert problems(lambda: stage(**wrong)) == ["idempotency_key"]
    assert stage(idempotency="keyed", idempotency_key="load-{run_id}-{stage}-{pipeline_id}")
    assert stage(idempotency="keyed", idempotency_key=str)


def test_a_name_of_a_stage_has_no_dot():
    """It is what separates it from its pipeline."""
    assert problems(lambda: stage("b.c")) == ["name"]
    assert PipelineDefinition("a.b", [stage("c")]).name == "a.b"


@pytest.mark.parametrize("name", ["", "a\0b", "\udc80", "x" * 1001, 7])
def test_names_that_no_store_can_hold(name):
    """Of data sets and of labels."""
    assert problems(lambda: stage(datasets=[name])) == ["datasets"]
    assert problems(lambda: stage(care_labels=[name])) == ["care_labels"]
