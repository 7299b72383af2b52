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
from functools import cached_property
from pathlib import Path
from traceback import walk_tb
from typing import Any, NamedTuple

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
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
SAMPLING = ("temperature", "top_k", "top_p")
GENERATION = ("until", "max_gen_toks", "do_sample", *SAMPLING, "num_beams")
"""What a task may set of how a text is written."""


class HarnessModel(TemplateLM):
    """A decoder or an encoder-decoder as the harness asks it. The weights are read when it is first asked."""

    def __init__(self, codec: Codec, family: str, length: int, read: Callable[[], Scorer]):
        super().__init__()
        self.codec, self.joins, self.length, self._read = codec, family == "decoder", length, read
        self.backend = "causal" if self.joins else "seq2seq"

    @cached_property
    def scorer(self) -> Scorer:
        return self._read()

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The special tokens by name: those of the run, and of its tokenizer where it has no other."""
        return {**self.codec.specials, **self.scorer.ids}

    @property
    def eot_token_id(self) -> int:
        return self.ids["eos"]

    @property
    def prefix_token_id(self) -> int:
        """What stands for an empty context: a decoder's start token."""
        names = ("start", "bos", "eos") if self.joins else ("bos", "eos")
        return next(self.ids[name] for name in names if name in self.ids)

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]]:
        """The special tokens before and behind a text: those that the tokenizer adds; a source ends at least in eos."""
        encoding = self.codec.tokenizer.encode("a", add_special_tokens=True)
        own = [place for place, added in enumerate(encoding.special_tokens_mask) if not added] or [len(encoding.ids)]
        before, after = encoding.ids[: own[0]], encoding.ids[own[-1] + 1 :]
        return before, [] if self.joins else after or [self.eot_token_id]

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        before, after = ([], []) if add_special_tokens is False else self._frame
        return [*before, *self.codec.encode([string])[0].tolist(), *after]

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        asked = [Request(tuple(context), tuple(continuation)) for _, context, continuation in requests]
        return [(-float(nats.sum()), greedy) for nats, greedy in self.scorer.nats_and_greedy(asked)]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """ln p of whole texts, every token once, in windows that follow each other."""
        each = [
            [
                Request(*map(tuple, make_disjoint_window(window)))
                for window in get_rolling_token_windows(
                    self.tok_encode(request.args[0]), self.prefix_token_id, self.length, context_len=1
                )
            ]
            for request in requests
        ]
        nats = iter(self.scorer.nats([window for windows in each for window in windows]))
        return [-sum(float(next(nats).sum()) for _ in windows) for windows in each]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """What follows each context, up to the first of the task's strings, which is left out."""
        groups: dict[Writing, dict[int, list[int]]] = {}
        for index, request in enumerate(requests):
            asked: Any = request.args
            writing = self.writing(asked[1])
            space = self.length - writing.steps if self.joins else self.length
            tokens = self.tok_encode(asked[0])[-space:] or [self.prefix_token_id]
            groups.setdefault(writing, {})[index] = tokens
        texts = [""] * len(requests)
        for writing, contexts in groups.items():
            widths = {index: len(tokens) + writing.steps for index, tokens in contexts.items()}
            for part in batches(widths, self.scorer.tokens):
                rows = [contexts[index] for index in part]
                batch = prompts(rows, self.scorer.model.family, self.scorer.ids).to(self.scorer.device)
                strategy = Until(writing.strategy(part[0]), writing.until, self._spelled)
                written = generate(self.scorer.model, batch, strategy, steps=writing.steps, stop={self.eot_token_id})
                for index, (best, *_) in zip(part, written, strict=True):
                    texts[index] = postprocess_generated_text(self._spelled(best.tokens), list(writing.until), None)
        return texts

    def _spelled(self, tokens: Sequence[int]) -> str:
        return self.codec.tokenizer.decode(tokens, skip_special_tokens=True)

    def writing(self, settings: Mapping[str, Any]) -> Writing:
        """A task's `generation_kwargs`, with the harness's defaults; what is not understood is refused."""
        most = self.length - 1 if self.joins else self.length  # a decoder's context is in the same window
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
            return Writing(steps, until, None)
        keys = {name: given[name] for name in SAMPLING if given.get(name) is not None}
        if keys.get("top_k") == 0:  # which is all of them in transformers
            del keys["top_k"]
        return Writing(steps, until, tuple(keys.items()))


class Writing(NamedTuple):
    """How a task wants a text to be written; `sampling` are the keys of a sample, None where it is greedy."""

    steps: int
    until: tuple[str, ...]
    sampling: tuple[tuple[str, Any], ...] | None

    def strategy(self, seed: int) -> Any:
        line = {"kind": "Greedy"} if self.sampling is None else {"kind": "Sample", "seed": seed, **dict(self.sampling)}
        return build("decode", line)


def run_tasks(
    model: HarnessModel, names: Sequence[str], shots: int | None, limit: int | None, generation: Mapping[str, Any]
) -> dict[str, Any]:
    """The harness's own document of results, with the `samples` of each task.

    `names` are names of its registry, which may have wildcards, YAML files, and folders of these. `shots` and
    `generation` replace what the tasks state. Mistakes in tasks are found before anything is scored.
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
        writes = False
        for task in loaded["tasks"].values():
            if getattr(task, "UNSAFE_CODE", False):
                fix = "export the run, and give this task to lm_eval itself"
                raise ScalingError("the task runs code that a model writes", key="TASK", value=task.task_name, fix=fix)
            # As the harness's own command sets them: a task that states 0 examples keeps it.
            stated = task.get_config("num_fewshot")
            task.set_config("num_fewshot", (stated or 0) if shots is None or stated == 0 else shots)
            task.set_fewshot_seed(DEFAULT_OTHER_SEED)
            if task.OUTPUT_TYPE == "generate_until":
                writes = True
                task.set_config("generation_kwargs", dict(generation), update=True)
                model.writing(task.get_config("generation_kwargs")).strategy(0)
        if generation and not writes:
            key, value = next(iter(generation.items()))
            raise ScalingError("none of the tasks asks for a text", key=key, value=value, fix="leave it out")
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


def _resolved(names: Sequence[str]) -> tuple[TaskManager, list[str]]:
    """The harness's index of tasks, and the names in it that words stand for. The registry, of more than ten thousand
    files, is read only where something of it is named.
    """
    files = {name: _read(Path(name).expanduser()) for name in names if name.endswith(YAML)}
    for name, config in files.items():
        if not config.keys() & {"task", "group", "class"}:
            what, fix = "it is no task of the harness", "state `task:` or `group:`, its name"
            raise ScalingError(what, file=Path(name).expanduser(), fix=fix)
    folders: dict[str, Path] = {}
    for name in names:
        path = Path(name).expanduser()
        inside = sorted(path.rglob("*.yaml")) if path.is_dir() else []
        if path.is_dir() and ("/" in name or inside):  # one without tasks may be named as a task of the registry is
            folders[name] = path
        for file in inside:
            _read(file)  # the harness leaves out what it cannot read
    own = [*folders.values(), *(Path(name).expanduser().parent for name, config in files.items() if "group" in config)]
    local = TaskManager(include_path=list(own), include_defaults=False)
    beyond = _grouped(local) - {*local.all_tasks} or any(name not in folders and name not in files for name in names)
    manager = TaskManager(include_path=list(own)) if beyond else local
    named: list[str] = []
    for name in names:
        if name in files:
            named.append(files[name].get("group", str(Path(name).expanduser())))
            continue
        if name in folders:
            index = TaskManager(include_path=folders[name], include_defaults=False)
            inside = _grouped(index)
            found = [task for task in (*index.all_groups, *index.all_subtasks) if task not in inside]
            if not found:
                raise ScalingError("the folder has no task of the harness", key="TASK", value=str(folders[name]))
        elif not (found := manager.match_tasks([name])):
            raise unknown(name, manager.all_tasks)
        named += found
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


def _grouped(manager: TaskManager) -> set[str]:
    """The names of the tasks and groups that groups list."""
    members = set()
    for group in manager.all_groups:
        listed = (manager.task_index[group].cfg or {}).get("task")
        for item in [listed] if isinstance(listed, str) else listed or ():
            name = item if isinstance(item, str) else item.get("group", item.get("task"))
            if isinstance(name, str):
                members.add(name)
    return members


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Without what the harness and its libraries print, and with its seeds, which some tasks need when they are read.
    The caller's are as they were afterwards.
    """
    quiet_datasets()
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    states, unread = (random.getstate(), np.random.get_state()), io.StringIO()
    random.seed(DEFAULT_RANDOM_SEED)
    np.random.seed(DEFAULT_OTHER_SEED)
    try:
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        with contextlib.redirect_stdout(unread), contextlib.redirect_stderr(unread), warnings.catch_warnings():
            warnings.simplefilter("ignore")
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
