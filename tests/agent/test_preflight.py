"""What is refused before a load, and in which words. That the engine refuses or dies of it is shown in conformance."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.agent import files, weights
from sidecar.agent.base import BaseModel, read_base
from sidecar.agent.mounts import Shared
from sidecar.agent.pathview import AdapterFacts, PathState, PathView
from sidecar.agent.plan import plan
from sidecar.agent.preflight import Limits, judge, limits_of
from sidecar.agent.state import Held, Load, Memory, Unload
from sidecar.agent.tensors import MOST_SHAPES, Collector, TensorFacts, TensorShape
from sidecar.api.reasons import Reason
from tests.agent.builders import ME, NOON, adapter, engine, info, world
from tests.agent.directories import safetensors
from tests.rig.adapters import TINY, make_adapter

pytestmark = pytest.mark.rule(5)

BASE = BaseModel(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
)
LIMITS = limits_of(info(lora_target_modules=("q_proj", "o_proj"), max_lora_rank=16), BASE)


def facts(
    *shapes: TensorShape, layers: int = 2, complete: bool = False, **over: object
) -> AdapterFacts:
    values: dict[str, object] = {
        "rank": 4,
        "target_modules": ("q_proj", "v_proj"),
        "peft_type": "LORA",
        "use_dora": False,
        "lora_alpha": 8.0,
        "tensors": TensorFacts(frozenset(shapes), layers, complete),
    }
    return AdapterFacts(**(values | over))  # type: ignore[arg-type]


def refusal(told: AdapterFacts, limits: Limits = LIMITS) -> tuple[Reason, str] | None:
    found = judge(told, limits)
    return (found.reason, found.text) if found else None


@pytest.mark.field(42)
@pytest.mark.parametrize(
    ("told", "text"),
    [
        pytest.param(
            facts(rank=64, tensors=None),
            "its rank is 64, the engine takes at most 16 (--max-lora-rank)",
            id="rank",
        ),
        pytest.param(
            facts(target_modules=("q_proj", "down_proj")),
            "it targets down_proj, the engine was started for q_proj, o_proj (--lora-target-modules)",
            id="modules",
        ),
        pytest.param(
            facts(use_dora=True),
            "it is a DoRA adapter (use_dora), which SGLang does not serve",
            id="DoRA",
        ),
        pytest.param(
            facts(layers=3),
            "it has weights for 3 layers, the base model has 2 (num_hidden_layers)",
            id="layers",
        ),
        pytest.param(
            facts(TensorShape("q_proj", "A", 4, 32)),
            "the lora_A of its q_proj has 32 columns, the base model's q_proj 64 (hidden_size)",
            id="hidden size",
        ),
        pytest.param(
            facts(TensorShape("v_proj", "B", 64, 4)),
            "the lora_B of its v_proj has 64 rows, the base model's v_proj 32 (num_key_value_heads 2 x head_dim 16)",
            id="grouped-query heads",
        ),
        pytest.param(
            facts(TensorShape("q_proj", "A", 2, 64)),
            "the lora_A of its q_proj has 2 rows, its rank (r) is 4",
            id="rank of a tensor's rows",
        ),
        pytest.param(
            facts(TensorShape("v_proj", "B", 32, 8)),
            "the lora_B of its v_proj has 8 columns, its rank (r) is 4",
            id="rank of a tensor's columns",
        ),
    ],
)
def test_a_refusal_says_both_numbers(told: AdapterFacts, text: str) -> None:
    assert refusal(told) == (Reason.INCOMPATIBLE, text)


@pytest.mark.parametrize(
    ("modules", "lacks"),
    [
        (["q_proj"], "it has weights for q_proj but none for v_proj"),
        (["q_proj", "k_proj"], "it has weights for q_proj but none for v_proj"),
        (["k_proj"], "it has weights for k_proj but none for q_proj"),
        (["v_proj", "k_proj"], "it has weights for k_proj but none for q_proj"),
        (["v_proj", "o_proj"], "it has weights for v_proj but none for q_proj"),
        (["up_proj", "down_proj"], "it has weights for up_proj but none for gate_proj"),
    ],
)
def test_half_of_a_fused_layer_is_refused_where_no_tensor_can_have_been_missed(
    modules: list[str], lacks: str
) -> None:
    shapes = [
        shape
        for module in modules
        for shape in (
            TensorShape(module, "A", 4, TINY.into(module)),
            TensorShape(module, "B", TINY.out(module), 4),
        )
    ]
    told = facts(*shapes, complete=True, target_modules=tuple(modules))
    text = f"{lacks}, and SGLang serves both as one layer"
    every = {"lora_target_modules": ("all",)}
    limits = limits_of(info("0.5.23", **every), BASE)
    assert refusal(told, limits) == (Reason.INCOMPATIBLE, text)
    assert refusal(facts(*shapes, target_modules=tuple(modules)), limits) is None
    assert refusal(told, limits_of(info("0.5.23", **every), None)) is None
    for untried in ("0.5.8", "0.5.24", ""):
        assert refusal(told, limits_of(info(untried, **every), BASE)) is None


def test_another_type_than_lora_is_no_adapter_for_sglang() -> None:
    text = "its peft_type is PROMPT_TUNING, and SGLang serves LORA only"
    assert refusal(facts(peft_type="PROMPT_TUNING")) == (Reason.INVALID_ADAPTER, text)
    assert refusal(facts(peft_type="lora")) is None


@pytest.mark.parametrize(
    ("module", "rows_of_b", "columns_of_a"),
    [
        ("q_proj", 64, 64),
        ("k_proj", 32, 64),
        ("v_proj", 32, 64),
        ("qkv_proj", 128, 64),
        ("o_proj", 64, 64),
        ("gate_proj", 128, 64),
        ("up_proj", 128, 64),
        ("gate_up_proj", 256, 64),
        ("down_proj", 64, 128),
    ],
)
def test_each_projection_fits_with_its_own_sizes_and_no_others(
    module: str, rows_of_b: int, columns_of_a: int
) -> None:
    limits = Limits(base=BASE)
    a = TensorShape(module, "A", 4, columns_of_a)
    b = TensorShape(module, "B", rows_of_b, 4)
    assert refusal(facts(a, b, target_modules=(module,)), limits) is None
    for wrong in (replace(a, columns=columns_of_a + 1), replace(b, rows=rows_of_b - 1)):
        assert refusal(facts(wrong, target_modules=(module,)), limits) is not None


@pytest.mark.parametrize(
    ("told", "limits"),
    [
        pytest.param(facts(rank=64), Limits(), id="rank, where the engine infers it"),
        pytest.param(
            facts(target_modules=("k_proj", "v_proj")), LIMITS, id="modules that share a layer"
        ),
        pytest.param(
            facts(target_modules=("all-linear",)), LIMITS, id="the adapter names no modules"
        ),
        pytest.param(facts(target_modules=("experts",)), LIMITS, id="a module nobody knows here"),
        pytest.param(
            facts(target_modules=("down_proj",)),
            limits_of(info(lora_target_modules=("all",)), BASE),
            id="the engine takes all modules",
        ),
        pytest.param(
            facts(target_modules=("down_proj",)),
            limits_of(info(lora_target_modules=("q_proj", "kv_b_proj")), BASE),
            id="the engine takes a module that we do not know",
        ),
        pytest.param(
            facts(target_modules=("down_proj",)),
            limits_of(info(lora_target_modules=None), BASE),
            id="the engine infers the modules",
        ),
        pytest.param(
            facts(target_modules=("v_proj",)),
            limits_of(info("0.5.8", lora_target_modules=("q_proj",)), BASE),
            id="an SGLang whose names were not looked at",
        ),
        pytest.param(
            facts(TensorShape("q_proj", "A", 4, 32), layers=9),
            limits_of(info(), None),
            id="the base model is unknown",
        ),
        pytest.param(
            facts(TensorShape("q_proj", "A", 4, 32), layers=9),
            limits_of(info(overrides_model=True), BASE),
            id="the base model is not as its config.json says",
        ),
        pytest.param(
            facts(TensorShape("down_proj", "A", 4, 32)),
            LIMITS,
            id="a tensor of a module that the adapter does not target",
        ),
        pytest.param(facts(tensors=None), LIMITS, id="weights that do not tell"),
        pytest.param(facts(), limits_of(None, None), id="the engine has said nothing"),
    ],
)
def test_what_is_not_certain_passes(told: AdapterFacts, limits: Limits) -> None:
    assert refusal(told, limits) is None


@given(
    st.builds(
        AdapterFacts,
        rank=st.integers(1, 10**6),
        target_modules=st.lists(st.text(max_size=9) | st.sampled_from(["q_proj", "all"])).map(
            tuple
        ),
        peft_type=st.text() | st.just("LORA"),
        use_dora=st.booleans(),
        lora_alpha=st.floats(allow_nan=False),
        tensors=st.none()
        | st.builds(
            TensorFacts,
            st.frozensets(
                st.builds(
                    TensorShape,
                    st.text(max_size=9) | st.sampled_from(["q_proj", "down_proj"]),
                    st.sampled_from(["A", "B"]),
                    st.integers(),
                    st.integers(),
                )
            ),
            st.integers(0),
        ),
    ),
    st.sampled_from([LIMITS, Limits(), Limits(base=BASE)]),
)
def test_whatever_an_adapter_says_gets_a_verdict_in_one_line(
    told: AdapterFacts, limits: Limits
) -> None:
    found = judge(told, limits)
    assert found is None or (found.text and len(found.text.encode()) < 400)


# --- what files say ---------------------------------------------------------------------------


def read(directory: Path) -> AdapterFacts:
    view = files.inspect(str(directory), Shared.of(["/"]), 2e9)
    assert view.state is PathState.WHOLE
    assert view.config
    return view.config


def test_the_shapes_come_from_the_headers_of_all_weights_files(tmp_path: Path) -> None:
    made = make_adapter(tmp_path / "a", modules=["q_proj", "v_proj"])
    (made / "adapter_model.safetensors").rename(made / "one.safetensors")
    name = "base_model.model.model.layers.7.mlp.down_proj.lora_A.weight"
    more = {name: {"dtype": "F16", "shape": [4, 128], "data_offsets": [0, 64]}}
    (made / "two.safetensors").write_bytes(safetensors(**more))
    q, v = TINY.out("q_proj"), TINY.out("v_proj")
    assert read(made).tensors == TensorFacts(
        frozenset(
            {
                TensorShape("q_proj", "A", 4, TINY.hidden),
                TensorShape("q_proj", "B", q, 4),
                TensorShape("v_proj", "A", 4, TINY.hidden),
                TensorShape("v_proj", "B", v, 4),
                TensorShape("down_proj", "A", 4, 128),
            }
        ),
        layers=8,
    )


@pytest.mark.parametrize(
    "name",
    [
        "base_model.model.model.layers.7.mlp.experts.3.down_proj.lora_A.weight",
        "base_model.model.vision_model.encoder.layers.7.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.7.self_attn.q_proj.lora_magnitude_vector",
        "base_model.model.lm_head.lora_A.weight",
        "",
    ],
)
def test_a_tensor_that_is_no_text_projection_tells_nothing(name: str) -> None:
    seen = Collector()
    seen.saw(name, (4, 32))
    seen.saw("base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight", (4, 32, 2))
    assert seen.facts() == TensorFacts()


def test_a_file_of_countless_shapes_is_kept_within_bounds() -> None:
    seen = Collector()
    for size in range(10 * MOST_SHAPES):
        seen.saw("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", (4, size))
    assert len(seen.facts().shapes) == MOST_SHAPES
    assert not seen.facts().complete


def test_a_header_that_is_too_long_to_read_leaves_the_facts_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_adapter(tmp_path / "a")
    assert read(made).tensors
    monkeypatch.setattr(weights, "READABLE", 100)
    assert read(made).tensors == TensorFacts(complete=False)


def test_archives_do_not_tell_their_shapes(tmp_path: Path) -> None:
    made = make_adapter(tmp_path / "a", weights="none")
    (made / "adapter_model.bin").write_bytes(b"\x80\x02}q\x00.")  # a pickle from before PyTorch 1.6
    assert read(made).tensors is None


# --- what the base model says -----------------------------------------------------------------

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def based(**over: object) -> BaseModel | None:
    told = {key: value for key, value in (CONFIG | over).items() if value != ()}
    return read_base(json.dumps(told).encode())


def test_a_dense_model_states_its_sizes() -> None:
    assert based() == BASE
    assert based(head_dim=32) == replace(BASE, head_dim=32)
    assert based(architectures=["Qwen3ForCausalLM"], head_dim=128) == replace(BASE, head_dim=128)


@pytest.mark.parametrize(
    "over",
    [
        pytest.param({"architectures": ["MixtralForCausalLM"]}, id="experts"),
        pytest.param({"architectures": ["LlamaForCausalLM"] * 2}, id="two architectures"),
        pytest.param({"architectures": [["LlamaForCausalLM"]]}, id="an architecture that is none"),
        pytest.param({"architectures": ()}, id="no architecture"),
        pytest.param({"num_key_value_heads": ()}, id="heads by default"),
        pytest.param({"head_dim": None}, id="a head_dim that says nothing"),
        pytest.param({"architectures": ["Qwen3ForCausalLM"]}, id="a head_dim by default"),
        pytest.param({"hidden_size": "64"}, id="a size that is no number"),
        pytest.param({"num_hidden_layers": 0}, id="no layers"),
        pytest.param({"num_hidden_layers": True}, id="a size that is a truth"),
    ],
)
def test_a_model_whose_sizes_are_not_beyond_doubt_is_unknown(over: dict[str, object]) -> None:
    assert based(**over) is None


@given(
    st.binary()
    | st.recursive(st.none() | st.text(), st.lists).map(lambda x: json.dumps(x).encode())
)
def test_whatever_a_config_holds_is_read_or_unknown(raw: bytes) -> None:
    assert read_base(raw) is None
    assert read_base(b"[" * 100_000) is None


# --- in the plan ------------------------------------------------------------------------------


def view(told: AdapterFacts, signature: str = "s1") -> PathView:
    return PathView(PathState.WHOLE, signature=signature, config=told, local=True)


def test_what_is_certain_to_fail_is_not_sent_and_holds_up_no_other() -> None:
    bad, good = adapter("bad"), adapter("good")
    paths = {bad.spec.path: view(facts(rank=64)), good.spec.path: view(facts())}
    seen = world(bad, good, paths=paths, engine=engine(lora_target_modules=("q_proj",)), base=BASE)
    decided = plan(seen, Memory(), ME, 100.0)
    assert [(e.reason, bool(e.text)) for e in decided.entries] == [
        (Reason.INCOMPATIBLE, True),
        (Reason.LOADING, False),
    ]
    assert [action.handle for action in decided.actions] == ["good"]


@pytest.mark.parametrize("off", [{"preflight": False}, {"trust_path": True}])
def test_it_can_be_turned_off(off: dict[str, bool]) -> None:
    a = adapter("a")
    seen = world(a, paths={a.spec.path: view(facts(rank=64))})
    decided = plan(seen, Memory(), replace(ME, **off), 100.0)
    assert [type(action) for action in decided.actions] == [Load]


def test_loads_wait_while_the_base_model_is_being_read() -> None:
    seen = world(adapter("a"), base_awaited=True)
    decided = plan(seen, Memory(), ME, 100.0)
    assert decided.actions == ()
    assert decided.entries[0].text == "waits for the base model's config.json to be read"


def _held(content: str = "c1") -> Memory:
    a = adapter("a")
    return Memory(
        held={
            "a": Held(
                a.metadata.uid, a.key, "a", a.spec.path, "boot-1", True, False, NOON, "s1", content
            )
        }
    )


@pytest.mark.rule(6)
def test_new_weights_that_would_fail_leave_the_old_ones_loaded() -> None:
    a = adapter("a")
    moved = {a.spec.path: view(facts(rank=64), "s2")}
    on_change = replace(ME, reload="on-change")
    seen = world(a, engine=engine({"a": a.spec.path}), paths=moved)
    decided = plan(seen, _held(content=""), on_change, 100.0)
    assert decided.actions == ()
    assert decided.entries[0].reason is Reason.LOADED
    assert decided.entries[0].text == (
        "the files have changed, and the new ones stay out: its rank is 64, the engine takes at most 16"
        " (--max-lora-rank)"
    )
    fits = world(a, engine=engine({"a": a.spec.path}), paths={a.spec.path: view(facts(), "s2")})
    assert [type(x) for x in plan(fits, _held(content=""), on_change, 100.0).actions] == [Unload]


@pytest.mark.rule(6)
def test_an_edited_path_that_would_fail_leaves_the_old_one_loaded() -> None:
    a = adapter("a", path="/adapters/new")
    old = _held()
    paths = {a.spec.path: view(facts(rank=64))}
    seen = world(a, engine=engine({"a": "/adapters/a"}), paths=paths)
    decided = plan(seen, old, ME, 100.0)
    assert decided.actions == ()
    assert decided.entries[0].text == (
        "its rank is 64, the engine takes at most 16 (--max-lora-rank); meanwhile /adapters/a stays loaded"
    )
