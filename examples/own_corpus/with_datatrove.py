"""Filter and tokenize with datatrove, then train on its files in place.

    pip install 'datatrove[processing]'
    python with_datatrove.py tokenizer.json        # reads text/*.jsonl.gz, writes tokens/*.ds
    scaling train decoder data=tokens 'data.files=tokens/*.ds' \
        'data.tokenizer={kind: File, path: tokenizer.json}'

It needs datatrove, which `scaling` does not install; no test of the project runs it. On a cluster use
`SlurmPipelineExecutor` instead of `LocalPipelineExecutor`.
"""

import sys

from datatrove.executor import LocalPipelineExecutor  # pyright: ignore[reportMissingImports]
from datatrove.pipeline.filters import (  # pyright: ignore[reportMissingImports]
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from datatrove.pipeline.readers import JsonlReader  # pyright: ignore[reportMissingImports]
from datatrove.pipeline.tokens import DocumentTokenizer  # pyright: ignore[reportMissingImports]

if __name__ == "__main__":
    pipeline = [
        JsonlReader("text", glob_pattern="*.jsonl.gz"),
        GopherRepetitionFilter(),
        GopherQualityFilter(),
        DocumentTokenizer("tokens", tokenizer_name_or_path=sys.argv[1], eos_token="</s>"),  # which ends a document
    ]
    LocalPipelineExecutor(pipeline, tasks=8, workers=2, logging_dir="logs").run()
