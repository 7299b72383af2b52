"""A run under lm-evaluation-harness (Gao et al. 2021): its tasks and metrics, our scores and texts.

The numbers are those of the harness's own model `hf` on the exported run, so texts become tokens as they do there:
context and continuation are cut by `TemplateLM`, a context has the special tokens that its tokenizer adds and no
others, and only an empty one is the start token. An encoder-decoder reads the context as its source, ended by `eos`.
"""

from __future__ import annotations

import contextlib
import io
import logging
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.task import Task
from lm_eval.defaults import DEFAULT_OTHER_SEED, DEFAULT_RANDOM_SEED
from lm_eval.evaluator import evaluate
from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml
from lm_eval.utils import get_rolling_token_windows, handle_non_serializable, make_disjoint_window, make_table

from scaling.data.codec import Codec
from scaling.data.sets import quiet_datasets
from scaling.decode import Until, generate, prompts
from scaling.errors import ScalingError
from scaling.schema import build
from scaling.scoring.likelihood import Request, Scorer, batches
from scaling.scoring.registry import YAML, unknown

LOGGERS = ("lm_eval", "datasets", "evaluate", "huggingface_hub", "httpx", "transformers", "absl")
GENERATION = ("until", "max_gen_toks", "do_sample", "temperature", "top_k", "top_p", "num_beams")
"""What a task may set of how a text is written."""


class HarnessModel(TemplateLM):
    """A decoder or an encoder-decoder as the harness asks it. The weights are read when it is first asked."""

    def __init__(self, codec: Codec, family: str, length: int, read: Callable[[], Scorer]):
        super().__init__()
        self.codec, self.family, self.length, self._read = codec, family, length, read
        self.backend = "seq2seq" if family == "encoder_decoder" else "causal"

    @cached_property
    def scorer(self) -> Scorer:
        return self._read()

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The special tokens by name: those of the run, and of its tokenizer where it has no other."""
        return {**self.codec.specials, **self.scorer.ids}

    @property
    def most(self) -> int:
        """The most tokens that are written at once: a decoder's context is in the same window."""
        return self.length if self.family == "encoder_decoder" else self.length - 1

    @property
    def eot_token_id(self) -> int:
        return self.ids["eos"]

    @property
    def prefix_token_id(self) -> int:
        """What stands for an empty context: a decoder's start token."""
        names = ("start", "bos", "eos") if self.family == "decoder" else ("bos", "eos")
        return next(self.ids[name] for name in names if name in self.ids)

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]]:
        """The special tokens before and behind a text: those that the tokenizer adds; a source ends at least in eos."""
        encoding = self.codec.tokenizer.encode("a", add_special_tokens=True)
        own = [place for place, added in enumerate(encoding.special_tokens_mask) if not added] or [len(encoding.ids)]
        before, after = encoding.ids[: own[0]], encoding.ids[own[-1] + 1 :]
        return before, ((after or [self.eot_token_id]) if self.family == "encoder_decoder" else [])

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        tokens = self.codec.encode([string])[0].tolist()
        if add_special_tokens is False:
            return tokens
        before, after = self._frame
        return [*before, *tokens, *after]

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        asked = [Request(tuple(context), tuple(continuation)) for _, context, continuation in requests]
        return [(-float(nats.sum()), greedy) for nats, greedy in self.scorer.nats_and_greedy(asked)]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """ln p of whole texts, every token once, in windows that follow each other."""
        each = [[*self._windows(self.tok_encode(request.args[0]))] for request in requests]
        nats = iter(self.scorer.nats([window for windows in each for window in windows]))
        return [-sum(float(next(nats).sum()) for _ in windows) for windows in each]

    def _windows(self, tokens: list[int]) -> Iterator[Request]:
        for window in get_rolling_token_windows(tokens, self.prefix_token_id, self.length, context_len=1):
            context, continuation = make_disjoint_window(window)
            yield Request(tuple(context), tuple(continuation))

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """What follows each context, up to the first of the task's strings, which is left out."""
        asked: list[Any] = [request.args for request in requests]
        groups: dict[Writing, list[int]] = {}
        for index, (_, settings) in enumerate(asked):
            groups.setdefault(Writing.of(settings, self.most), []).append(index)
        texts = [""] * len(requests)
        for writing, group in groups.items():
            space = self.length if self.family == "encoder_decoder" else self.length - writing.steps
            contexts = {index: self.tok_encode(asked[index][0])[-space:] for index in group}
            contexts = {index: tokens or [self.prefix_token_id] for index, tokens in contexts.items()}
            widths = {index: len(tokens) + writing.steps for index, tokens in contexts.items()}
            for part in batches(widths, self.scorer.tokens):
                for index, text in zip(part, self._written([contexts[index] for index in part], writing, part[0])):
                    texts[index] = text
        return texts

    def _written(self, rows: Sequence[Sequence[int]], writing: Writing, seed: int) -> list[str]:
        batch = prompts(rows, self.family, self.scorer.ids).to(self.scorer.device)
        strategy = Until(writing.strategy(seed), writing.until, self._spelled)
        written = generate(self.scorer.model, batch, strategy, steps=writing.steps, stop={self.eot_token_id})
        texts = [self._spelled(best.tokens) for best, *_ in written]
        return [postprocess_generated_text(text, list(writing.until), None) for text in texts]

    def _spelled(self, tokens: Sequence[int]) -> str:
        return self.codec.tokenizer.decode(tokens, skip_special_tokens=True)


@dataclass(frozen=True)
class Writing:
    """How a task wants a text to be written: a strategy of ours with its keys."""

    steps: int
    until: tuple[str, ...]
    kind: str
    keys: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, settings: Mapping[str, Any], most: int) -> Writing:
        """The task's `generation_kwargs`, with the harness's defaults; what is not understood is refused."""
        try:
            given: dict[str, Any] = {**normalize_gen_kwargs(dict(settings))}
        except (TypeError, ValueError) as error:
            raise ScalingError(str(error), key="generation_kwargs", value=dict(settings)) from None
        for key, value in given.items():
            if key not in GENERATION or (key == "num_beams" and value != 1):
                what = "texts of the harness are not written so here"
                fix = "write num_beams=1 behind the command" if key == "num_beams" else f"take {', '.join(GENERATION)}"
                raise ScalingError(what, key=f"generation_kwargs.{key}", value=value, fix=fix)
        steps = given["max_gen_toks"]
        if not 0 < steps <= most:
            what = f"a text of this many tokens does not fit the run's window, where {most} do"
            fix = f"write max_gen_toks={max(1, most // 2)} behind the command"
            raise ScalingError(what, key="generation_kwargs.max_gen_toks", value=steps, fix=fix)
        until = tuple(str(string) for string in given["until"] if string)
        if not given["do_sample"]:
            return cls(steps, until, "Greedy", ())
        keys = {name: given[name] for name in ("temperature", "top_k", "top_p") if given.get(name) is not None}
        if keys.get("top_k") == 0:  # which is all of them in transformers
            del keys["top_k"]
        return cls(steps, until, "Sample", tuple(keys.items()))

    def strategy(self, seed: int) -> Any:
        return build(
            "decode", {"kind": self.kind, **dict(self.keys), **({"seed": seed} if self.kind == "Sample" else {})}
        )


def run_tasks(
    model: HarnessModel, names: Sequence[str], shots: int | None, limit: int | None, generation: Mapping[str, Any]
) -> dict[str, Any]:
    """The harness's own document of results, with the `samples` of each task.

    `names` are names of its registry, which may have wildcards, YAML files, and folders of these. `shots` and
    `generation` replace what the tasks state.
    """
    with _alone():
        with _one_line(names, model):
            manager, named = _resolved(names)
        loaded: dict[str, Any] = {"tasks": {}, "groups": {}, "group_map": {}}
        for name in named:
            with _one_line([name], model):
                own = manager.load(name)
            if again := sorted(loaded["tasks"].keys() & own["tasks"].keys()):
                raise ScalingError("a task is named twice", key="TASK", value=again[0], fix="name it once")
            for key, entries in loaded.items():
                entries.update(own.get(key, {}))
        tasks = loaded["tasks"].values()
        for task in tasks:
            _set_up(task, shots)
        _set_generation([task for task in tasks if task.OUTPUT_TYPE == "generate_until"], model, generation)
        with _one_line(named, model):
            results = evaluate(model, loaded, limit=limit)  # type: ignore[arg-type]
    assert results is not None  # only other ranks have none
    return dict(results)


def table(results: Mapping[str, Any]) -> str:
    """The harness's own table, and that of its groups."""
    columns = [column for column in ("results", "groups") if results.get(column)]
    return "\n".join(make_table(results, column).rstrip() for column in columns)


def plain(value: Any) -> Any:
    """A document of the harness as JSON has it; what is no number is null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return plain(handle_non_serializable(value))


def _set_up(task: Task, shots: int | None) -> None:
    """The examples before each question, as the harness's own command sets them: a task that states 0 keeps it."""
    if getattr(task, "UNSAFE_CODE", False):
        fix = "export the run, and give this task to lm_eval itself"
        raise ScalingError("the task runs code that a model writes", key="TASK", value=task.task_name, fix=fix)
    stated = task.get_config("num_fewshot")
    task.set_config("num_fewshot", (stated or 0) if shots is None or stated == 0 else shots)
    task.set_fewshot_seed(DEFAULT_OTHER_SEED)


def _set_generation(tasks: Sequence[Task], model: HarnessModel, generation: Mapping[str, Any]) -> None:
    """Lay the given settings over those of the tasks, and refuse what cannot be done before anything is scored."""
    if generation and not tasks:
        key, value = next(iter(generation.items()))
        raise ScalingError("none of the tasks asks for a text", key=key, value=value, fix="leave it out")
    for task in tasks:
        task.set_config("generation_kwargs", dict(generation), update=True)
        Writing.of(task.get_config("generation_kwargs"), model.most).strategy(0)


def _resolved(names: Sequence[str]) -> tuple[TaskManager, list[str]]:
    """The harness's index of tasks, and the names in it that words stand for. The registry, of more than ten thousand
    files, is read only where something of it is named.
    """
    paths = {name: Path(name).expanduser() for name in names}
    configs = {name: _read(path) for name, path in paths.items() if name.endswith(YAML)}
    for name, config in configs.items():
        if not config.keys() & {"task", "group", "class"}:
            what, fix = "it is no task of the harness", "state `task:` or `group:`, its name"
            raise ScalingError(what, file=paths[name], fix=fix)
    # A folder without tasks may be named as a task of the registry is.
    folders = {
        name: path for name, path in paths.items() if path.is_dir() and ("/" in name or any(path.rglob("*.yaml")))
    }
    for folder in folders.values():
        for file in sorted(folder.rglob("*.yaml")):
            _read(file)  # the harness leaves out what it cannot read
    own = [*folders.values(), *(paths[name].parent for name, config in configs.items() if "group" in config)]
    local = TaskManager(include_path=list(own), include_defaults=False)
    members = {member for name in local.all_groups for member in _members(local.task_index[name].cfg or {})}
    registered = [name for name in names if name not in folders and name not in configs]
    manager = TaskManager(include_path=list(own)) if registered or members - {*local.all_tasks} else local
    named: list[str] = []
    for name in names:
        if name in folders:
            named += _whole(folders[name])
        elif name in configs:
            named.append(configs[name].get("group", str(paths[name])))
        else:
            matching = manager.match_tasks([name])
            if not matching:
                raise unknown(name, manager.all_tasks)
            named += matching
    return manager, list(dict.fromkeys(named))


def _read(file: Path) -> dict[str, Any]:
    """What a task's file states; a function that it names is not imported yet."""
    try:
        return load_yaml(file, resolve_func=False)
    except FileNotFoundError as error:
        missing = Path(error.filename or file)
        raise ScalingError("there is no such file", key="TASK", file=missing) from None
    except Exception as error:  # of the parser, which has many
        raise ScalingError(f"it is no task of the harness: {' '.join(str(error).split())}", file=file) from None


def _whole(folder: Path) -> list[str]:
    """The groups of a folder that are in no other, and the tasks that are in none."""
    index = TaskManager(include_path=folder, include_defaults=False)
    inside = {member for name in index.all_groups for member in _members(index.task_index[name].cfg or {})}
    names = [name for name in (*index.all_groups, *index.all_subtasks) if name not in inside]
    if not names:
        raise ScalingError("the folder has no task of the harness", key="TASK", value=str(folder))
    return names


def _members(config: Mapping[str, Any]) -> Iterator[str]:
    """The names of the tasks and groups that a group lists."""
    listed = config.get("task")
    for item in [listed] if isinstance(listed, str) else listed or ():
        if isinstance(item, str):
            yield item
        elif isinstance(name := item.get("group", item.get("task")), str):
            yield name


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Without what the harness and its libraries print, and with its seeds, which some tasks need when they are read.
    The caller's are as they were afterwards.
    """
    quiet_datasets()
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    states = random.getstate(), np.random.get_state()
    random.seed(DEFAULT_RANDOM_SEED)
    np.random.seed(DEFAULT_OTHER_SEED)
    try:
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        unread = io.StringIO()
        with (
            contextlib.redirect_stdout(unread),
            contextlib.redirect_stderr(unread),
            warnings.catch_warnings(action="ignore"),
        ):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


@contextlib.contextmanager
def _one_line(names: Sequence[str], model: HarnessModel) -> Iterator[None]:
    """What a task or its data raise is for the user to fix; what the model raises is not."""
    try:
        yield
    except ScalingError:
        raise
    except Exception as error:
        if any(frame.f_locals.get("self") is model for frame, _ in walk_tb(error.__traceback__)):
            raise
        reason = " ".join(str(error).split())[:300]
        what = f"the harness stopped: {type(error).__name__}: {reason}"
        fix = "check the network" if isinstance(error, ConnectionError) else "check the task and its data"
        raise ScalingError(what, key="TASK", value=",".join(names), fix=fix) from error
