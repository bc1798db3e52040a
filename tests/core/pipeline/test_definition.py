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
