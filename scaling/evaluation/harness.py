"""A run under lm-evaluation-harness (Gao et al. 2021): its tasks and metrics, our scores and texts.

The numbers are those of the harness's own model `hf` on the exported run, so texts become tokens as they do there:
`TemplateLM` cuts context and continuation, a context has the special tokens that its tokenizer adds and no others, and
only an empty one is the start token. An encoder-decoder reads the context as its source, ended by `eos`.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np
from lightning.pytorch.utilities.seed import isolate_rng
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.defaults import DEFAULT_OTHER_SEED, DEFAULT_RANDOM_SEED
from lm_eval.evaluator import evaluate
from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text
from lm_eval.tasks import TaskManager
from lm_eval.utils import get_rolling_token_windows, handle_non_serializable, make_disjoint_window, make_table

from scaling.base.errors import ScalingError, refuse, under
from scaling.config.files import SUFFIXES
from scaling.config.schema import build
from scaling.data.codec import Codec
from scaling.data.sets import quiet_datasets
from scaling.evaluation.generate import generate, prompts
from scaling.evaluation.likelihood import Request, Scorer, batches
from scaling.evaluation.registry import unknown


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
        """The token that stands for an empty context: a decoder's start token."""
        names = ("start", "bos", "eos") if self.joins else ("bos", "eos")
        return next(self.ids[name] for name in names if name in self.ids)

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]]:
        """The special tokens before and behind a text: those that the tokenizer adds; a source ends at least in eos."""
        encoding = self.codec.tokenizer.encode("a", add_special_tokens=True)
        inner = [place for place, added in enumerate(encoding.special_tokens_mask) if not added] or [len(encoding.ids)]
        before, after = encoding.ids[: inner[0]], encoding.ids[inner[-1] + 1 :]
        return before, [] if self.joins else after or [self.eot_token_id]

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        before, after = ([], []) if add_special_tokens is False else self._frame
        return [*before, *self.codec.encode([string])[0].tolist(), *after]

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        pairs = [Request(tuple(context), tuple(continuation)) for _, context, continuation in requests]
        return [(-float(nats.sum()), greedy) for nats, greedy in self.scorer.nats_and_greedy(pairs)]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """ln p of whole texts, every token once, in windows that follow each other."""

        def windows(text: str) -> list[Request]:
            tokens, first = self.tok_encode(text), self.prefix_token_id
            cuts = get_rolling_token_windows(tokens, first, self.length, context_len=1)
            return [Request(*map(tuple, make_disjoint_window(cut))) for cut in cuts]

        return [-nats for nats in self.scorer.totals([windows(request.args[0]) for request in requests])]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """The continuation of each context, up to the first of the task's strings, which is left out."""
        arguments: list[Any] = [request.args for request in requests]
        groups: dict[str, list[int]] = {}
        for index, (_, settings) in enumerate(arguments):
            groups.setdefault(json.dumps(settings, sort_keys=True, default=str), []).append(index)
        texts, model = [""] * len(requests), self.scorer.model
        for indices in groups.values():
            steps, until, line = self.writing(arguments[indices[0]][1])
            # A token spells a byte at least, so the last few tokens show whether a string is there.
            reach = max((len(string.encode()) for string in until), default=0) + 2

            def ended(tokens: Sequence[int], until: Sequence[str] = until, reach: int = reach) -> bool:
                return bool(until) and any(map(self._spelled(tokens[-reach:]).__contains__, until))

            space = self.length - steps if self.joins else self.length
            rows = {index: self.tok_encode(arguments[index][0])[-space:] or [self.prefix_token_id] for index in indices}
            for part in batches({index: len(row) + steps for index, row in rows.items()}, self.scorer.tokens):
                strategy = build("decode", {**line, **({"seed": part[0]} if line["kind"] == "Sample" else {})})
                batch = prompts([rows[index] for index in part], model.family, self.scorer.ids).to(self.scorer.device)
                written = generate(model, batch, strategy, steps=steps, stop={self.eot_token_id}, ended=ended)
                for index, (best, *_) in zip(part, written, strict=True):
                    texts[index] = postprocess_generated_text(self._spelled(best.tokens), until, None)
        return texts

    def _spelled(self, tokens: Sequence[int]) -> str:
        return self.codec.tokenizer.decode(tokens, skip_special_tokens=True)

    def writing(self, settings: Mapping[str, Any]) -> tuple[int, list[str], dict[str, Any]]:
        """What a task's `generation_kwargs` ask for: the number of tokens, the strings that end a text, and a strategy
        of `scaling explain decode`; what no strategy has is refused.
        """
        try:
            keys: dict[str, Any] = {**normalize_gen_kwargs(dict(settings))}
        except (TypeError, ValueError) as error:
            raise ScalingError(str(error), key="generation_kwargs", value=dict(settings)) from None
        steps, until, samples = (keys.pop(name) for name in ("max_gen_toks", "until", "do_sample"))
        longest = self.length - 1 if self.joins else self.length  # a decoder's context is in the same window
        what = f"a text of this many tokens does not fit the run's window, where {longest} do"
        fix = f"write max_gen_toks={max(1, longest // 2)} behind the command"
        refuse(not 0 < steps <= longest, what, fix, key="generation_kwargs.max_gen_toks", value=steps)
        unset = [("num_beams", 1), ("top_k", 0)]  # top_k of 0 is all tokens in transformers
        unused = () if samples else ("temperature", "top_k", "top_p")
        line: dict[str, Any] = {"kind": "Sample" if samples else "Greedy"}
        line |= {k: v for k, v in keys.items() if v is not None and (k, v) not in unset and k not in unused}
        with under("generation_kwargs"):
            build("decode", line)
        return steps, [str(string) for string in until if string], line


def run_tasks(
    model: HarnessModel, names: Sequence[str], shots: int | None, limit: int | None, generation: Mapping[str, Any]
) -> dict[str, Any]:
    """The harness's own document of results, with the `samples` of each task.

    `names` are names of its registry, which may have wildcards, and YAML files. `shots` and `generation` replace what
    the tasks state. Mistakes in tasks are found before anything is scored.
    """
    with _quiet(), _one_line(names, model):
        loaded: Any = _loaded(names)
        writes = False
        for task in loaded["tasks"].values():
            # As the harness's own command sets them: a task that states 0 examples keeps it.
            stated = task.get_config("num_fewshot")
            task.set_config("num_fewshot", (stated or 0) if shots is None or stated == 0 else shots)
            task.set_fewshot_seed(DEFAULT_OTHER_SEED)
            if task.OUTPUT_TYPE == "generate_until":
                writes = True
                task.set_config("generation_kwargs", dict(generation), update=True)
                model.writing(task.get_config("generation_kwargs"))
        what = "none of the tasks asks for a text"
        refuse(generation and not writes, what, "leave it out", key=", ".join(generation))
        results = evaluate(model, loaded, limit=limit)
    assert results is not None  # only other ranks have none
    return json.loads(json.dumps(dict(results), default=handle_non_serializable))


def table(results: Mapping[str, Any]) -> str:
    """The harness's own table, and that of its groups."""
    columns = [column for column in ("results", "groups") if results.get(column)]
    return "\n".join(make_table(results, column).rstrip() for column in columns)


def _loaded(names: Sequence[str]) -> Any:
    """The tasks and groups that words name. The registry, of more than ten thousand files, is read only where one of
    them is not a file of a task.
    """
    files = {name: Path(os.path.expanduser(name)).resolve() for name in names if name.endswith(SUFFIXES)}
    folders = list(dict.fromkeys(file.parent for file in files.values()))
    local = TaskManager(include_path=[*folders], include_defaults=False)
    groups = {local.task_index[name].yaml_path: name for name in local.all_groups}
    named = {name: groups.get(file, str(file)) for name, file in files.items()}
    if files.keys() == set(names):
        with contextlib.suppress(KeyError):  # a group of the file has tasks of the registry
            return local.load([*named.values()])
    manager, listed = TaskManager(include_path=[*folders]), list[str]()
    for name in names:
        matches = [named[name]] if name in named else manager.match_tasks([name])
        if not matches:
            raise unknown(name, manager.all_tasks)
        listed += matches
    return manager.load(list(dict.fromkeys(listed)))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what the harness and its libraries print, and with its seeds, which some tasks need when they are read.
    The caller's are as they were afterwards.
    """
    quiet_datasets()
    logged, unread = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.CRITICAL)
    try:
        with (
            contextlib.redirect_stdout(unread),
            contextlib.redirect_stderr(unread),
            warnings.catch_warnings(action="ignore"),
            isolate_rng(),
        ):
            random.seed(DEFAULT_RANDOM_SEED)
            np.random.seed(DEFAULT_OTHER_SEED)
            yield
    finally:
        logging.disable(logged)


@contextlib.contextmanager
def _one_line(names: Sequence[str], model: HarnessModel) -> Iterator[None]:
    """Report an error of a task or its data in one line; an error of the model is raised as it is."""
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
